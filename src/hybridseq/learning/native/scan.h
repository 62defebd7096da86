/* The selective scan of one channel of Mamba's layer, forward and backward.

   For every state number n:   h_n[t] = exp(dt[t] A_n) h_n[t-1] + dt[t] u[t] B_n[t],   y[t] = sum_n C_n[t] h_n[t],   h_n[-1] = 0.

   States go in tiles that live in registers while the time loop runs. The backward pass computes a = exp(dt A) and h again, piece
   by piece from the states before each piece, into a scratch that fits the first-level cache; this is cheaper than storing N
   numbers a channel and position. decay holds A log2(e), so that exp is a power of two. */

#ifndef HYBRIDSEQ_SCAN_H
#define HYBRIDSEQ_SCAN_H

#include "lanes.h"

/* States in pairs: maps[pair][t] holds B_n, B_{n+1}, C_n, C_{n+1}, so that a tile reads one stream. An odd state_dim is filled up
   with a state whose B and C are zero. */
enum { PAIR = 2, SLOTS = 2 * PAIR };

INLINE int pairs(int state_dim) { return (state_dim + PAIR - 1) / PAIR; }

/* From rows [state_dim][len] of B and then C. */
static void pack_pairs(int state_dim, int len, const v8 *rows, v8 *maps) {
    for (int n = 0; n < PAIR * pairs(state_dim); n++)
        for (int t = 0; t < len; t++) {
            v8 *to = maps + (n / PAIR * len + t) * SLOTS + n % PAIR;
            to[0] = n < state_dim ? rows[n * len + t] : all(0);
            to[PAIR] = n < state_dim ? rows[(state_dim + n) * len + t] : all(0);
        }
}

static void unpack_pairs(int state_dim, int len, const v8 *maps, v8 *rows) {
    for (int n = 0; n < state_dim; n++)
        for (int t = 0; t < len; t++) {
            const v8 *from = maps + (n / PAIR * len + t) * SLOTS + n % PAIR;
            rows[n * len + t] = from[0];
            rows[(state_dim + n) * len + t] = from[PAIR];
        }
}

/* exp(dt A); `bounded` says that no exponent of the channel leaves the range of normal numbers, which saves a comparison. */
INLINE v8 decayed(v8 dt, v8 decay, const int bounded) { return bounded ? power_of_two(dt * decay) : exp2_negative(dt * decay); }

/* Whether dt A log2(e) stays above the least exponent for every position and state of a channel. */
static int is_bounded(int state_dim, int len, const real *decay, const v8 *dt) {
    real least = 0;
    v8 most = all(0);
    for (int n = 0; n < state_dim; n++) least = decay[n] < least ? decay[n] : least;
    for (int t = 0; t < len; t++) most = larger(dt[t], most);
    for (int lane = 0; lane < LANES; lane++)
        if (!(most[lane] * least > LEAST_EXPONENT)) return 0;
    return 1;
}

/* Positions go in pieces: what a piece touches stays in the first-level cache. The forward pass keeps the states before each. */
enum { PIECE = 32 };

INLINE int pieces(int len) { return (len + PIECE - 1) / PIECE; }
INLINE int piece_end(int start, int len) { return start + PIECE < len ? start + PIECE : len; }

INLINE void scan_forward_tile(int len, const real *decay, const v8 *restrict dt, const v8 *restrict x, const v8 *restrict maps,
                              v8 *restrict y, v8 *restrict before, int stride, const int bounded) {
    v8 h0 = all(0), h1 = all(0), decay0 = all(decay[0]), decay1 = all(decay[1]);
    for (int start = 0; start < len; start += PIECE, before += stride) {
        before[0] = h0, before[1] = h1;
        for (int t = start; t < piece_end(start, len); t++, maps += SLOTS) {
            h0 = decayed(dt[t], decay0, bounded) * h0 + x[t] * maps[0];
            h1 = decayed(dt[t], decay1, bounded) * h1 + x[t] * maps[1];
            y[t] += h0 * maps[2] + h1 * maps[3];
        }
    }
}

/* y += the scan's output, from x = dt u. decay: one number a state, filled up to whole pairs. before: [pieces][whole pairs]. */
static void scan_forward(int state_dim, int len, const real *decay, const v8 *dt, const v8 *x, const v8 *maps, v8 *y,
                         v8 *before) {
    int bounded = is_bounded(state_dim, len, decay, dt), stride = PAIR * pairs(state_dim);
    for (int pair = 0; pair < pairs(state_dim); pair++, decay += PAIR, maps += SLOTS * len, before += PAIR) {
        if (bounded) scan_forward_tile(len, decay, dt, x, maps, y, before, stride, 1);
        else scan_forward_tile(len, decay, dt, x, maps, y, before, stride, 0);
    }
}

/* Backward, two channels side by side share what they read of B and C and what they add to their gradients. */
enum { TWO = 2, TILE = TWO * PAIR };

/* What one tile of the backward pass reads and adds to, beside its position: rows of the first channel, the second follows. */
typedef struct {
    long len, states;                             /* states: whole pairs, the distance of two channels in decay */
    const real *decay;
    const v8 *restrict dt, *restrict x, *restrict dy;
    const v8 *restrict maps, *restrict before;    /* before: states of the first channel before the piece */
    v8 *restrict d_dt, *restrict d_x, *restrict d_maps;
    v8 *restrict carried;                         /* [2][TILE]: gradients of the states behind the piece, and of A so far */
    v8 *restrict kept;                            /* [PIECE][2][TILE]: a, and h[t - 1] */
} Backward;

INLINE void scan_backward_tile(Backward b, long start, long end, const int bounded) {
    const long len = b.len;
    v8 h[TWO][PAIR], g[TWO][PAIR], sum[TWO][PAIR];
    for (int c = 0; c < TWO; c++)
        for (int n = 0; n < PAIR; n++) {
            h[c][n] = b.before[c * pieces(len) * b.states + n];
            g[c][n] = b.carried[c * PAIR + n], sum[c][n] = b.carried[TILE + c * PAIR + n];
        }
    for (long t = start; t < end; t++) {
        v8 *keep = b.kept + (t - start) * 2 * TILE;
        const v8 *map = b.maps + t * SLOTS;
        for (int c = 0; c < TWO; c++)
            for (int n = 0; n < PAIR; n++) {
                v8 a = decayed(b.dt[c * len + t], all(b.decay[c * b.states + n]), bounded);
                keep[c * PAIR + n] = a;
                keep[TILE + c * PAIR + n] = h[c][n];
                h[c][n] = a * h[c][n] + b.x[c * len + t] * map[n];
            }
    }
    for (long t = end - 1; t >= start; t--) { /* h: h[t]; g: its gradient */
        const v8 *map = b.maps + t * SLOTS, *keep = b.kept + (t - start) * 2 * TILE;
        v8 *d_map = b.d_maps + t * SLOTS;
        for (int n = 0; n < PAIR; n++) {
            v8 d_b = d_map[n], d_c = d_map[PAIR + n];
            for (int c = 0; c < TWO; c++) {
                v8 y = b.dy[c * len + t];
                d_c += y * h[c][n];
                g[c][n] += y * map[PAIR + n];
                d_b += g[c][n] * b.x[c * len + t];
            }
            d_map[n] = d_b, d_map[PAIR + n] = d_c;
        }
        for (int c = 0; c < TWO; c++) {
            v8 slope[PAIR]; /* gradient of dt A */
            b.d_x[c * len + t] += g[c][0] * map[0] + g[c][1] * map[1];
            for (int n = 0; n < PAIR; n++) {
                g[c][n] *= keep[c * PAIR + n];
                h[c][n] = keep[TILE + c * PAIR + n];
                slope[n] = g[c][n] * h[c][n];
                sum[c][n] += slope[n] * b.dt[c * len + t];
            }
            b.d_dt[c * len + t] += slope[0] * b.decay[c * b.states] + slope[1] * b.decay[c * b.states + 1];
        }
    }
    for (int c = 0; c < TWO; c++)
        for (int n = 0; n < PAIR; n++) b.carried[c * PAIR + n] = g[c][n], b.carried[TILE + c * PAIR + n] = sum[c][n];
}

/* Numbers (v8) of scratch that scan_backward takes. */
static int scan_scratch(int state_dim) { return 2 * TWO * PAIR * pairs(state_dim) + 2 * TILE * PIECE; }

/* Two channels, from dy: adds to d_maps, overwrites d_x and d_dt (through exp(dt A) only, times log2(e)), adds the gradient of A
   to d_decay. before: what scan_forward kept. */
static void scan_backward(int state_dim, int len, const real *decay, const v8 *dt, const v8 *x, const v8 *maps, const v8 *dy,
                          v8 *d_dt, v8 *d_x, v8 *d_maps, real *d_decay, const v8 *before, v8 *scratch) {
    int states = PAIR * pairs(state_dim), carries = TWO * states;
    int bounded = is_bounded(state_dim, len, decay, dt) && is_bounded(state_dim, len, decay + states, dt + len);
    v8 *carried = scratch, *kept = scratch + 2 * carries;
    for (int t = 0; t < TWO * len; t++) d_dt[t] = d_x[t] = all(0);
    for (int i = 0; i < 2 * carries; i++) carried[i] = all(0);
    for (int piece = pieces(len) - 1; piece >= 0; piece--)
        for (int pair = 0, n = 0; pair < pairs(state_dim); pair++, n += PAIR) {
            Backward tile = {len, states, decay + n, dt, x, dy, maps + pair * SLOTS * len, before + piece * states + n,
                             d_dt, d_x, d_maps + pair * SLOTS * len, carried + pair * 2 * TILE, kept};
            int start = piece * PIECE, end = piece_end(start, len);
            if (bounded) scan_backward_tile(tile, start, end, 1);
            else scan_backward_tile(tile, start, end, 0);
        }
    for (int pair = 0; pair < pairs(state_dim); pair++)
        for (int c = 0; c < TWO; c++)
            for (int n = 0; n < PAIR; n++)
                d_decay[c * states + pair * PAIR + n] += sum_lanes(carried[(2 * pair + 1) * TILE + c * PAIR + n]);
}

#endif
