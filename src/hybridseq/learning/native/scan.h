/* The selective scan of one channel of Mamba's layer, forward and backward.

   For every state number n:   h_n[t] = exp(dt[t] A_n) h_n[t-1] + dt[t] u[t] B_n[t],   y[t] = sum_n C_n[t] h_n[t],   h_n[-1] = 0.

   States go in tiles that live in registers while the time loop runs. Nothing of the states is kept for the backward pass: it
   computes a = exp(dt A) and h again, into a scratch that fits the first-level cache, which is cheaper than storing N numbers a
   channel and position. decay holds A log2(e), so that exp is a power of two. */

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

INLINE void scan_forward_tile(int len, const real *decay, const v8 *restrict dt, const v8 *restrict x, const v8 *restrict maps,
                              v8 *restrict y, const int bounded) {
    v8 h0 = all(0), h1 = all(0), decay0 = all(decay[0]), decay1 = all(decay[1]);
    for (int t = 0; t < len; t++, maps += SLOTS) {
        h0 = decayed(dt[t], decay0, bounded) * h0 + x[t] * maps[0];
        h1 = decayed(dt[t], decay1, bounded) * h1 + x[t] * maps[1];
        y[t] += h0 * maps[2] + h1 * maps[3];
    }
}

/* y += the scan's output, from x = dt u. decay: one number a state, filled up to whole pairs. */
static void scan_forward(int state_dim, int len, const real *decay, const v8 *dt, const v8 *x, const v8 *maps, v8 *y) {
    int bounded = is_bounded(state_dim, len, decay, dt);
    for (int pair = 0; pair < pairs(state_dim); pair++, decay += PAIR, maps += SLOTS * len) {
        if (bounded) scan_forward_tile(len, decay, dt, x, maps, y, 1);
        else scan_forward_tile(len, decay, dt, x, maps, y, 0);
    }
}

INLINE void scan_backward_tile(int len, const real *decay, const v8 *restrict dt, const v8 *restrict x, const v8 *restrict maps,
                               const v8 *restrict dy, v8 *restrict d_dt, v8 *restrict d_x, v8 *restrict d_maps, real *d_decay,
                               v8 *restrict kept, const int bounded) {
    const v8 decay0 = all(decay[0]), decay1 = all(decay[1]);
    v8 h0 = all(0), h1 = all(0), g0 = all(0), g1 = all(0), sum0 = all(0), sum1 = all(0);
    for (int t = 0; t < len; t++) { /* kept[t]: a of both states, then h[t - 1] of both */
        v8 *keep = kept + t * SLOTS;
        keep[2] = h0, keep[3] = h1;
        keep[0] = decayed(dt[t], decay0, bounded), keep[1] = decayed(dt[t], decay1, bounded);
        h0 = keep[0] * h0 + x[t] * maps[t * SLOTS];
        h1 = keep[1] * h1 + x[t] * maps[t * SLOTS + 1];
    }
    for (int t = len - 1; t >= 0; t--) { /* h: h[t]; g: its gradient */
        const v8 *map = maps + t * SLOTS, *keep = kept + t * SLOTS;
        v8 *d_map = d_maps + t * SLOTS;
        d_map[2] += dy[t] * h0, d_map[3] += dy[t] * h1;
        g0 += dy[t] * map[2], g1 += dy[t] * map[3];
        d_map[0] += g0 * x[t], d_map[1] += g1 * x[t];
        d_x[t] += g0 * map[0] + g1 * map[1];
        g0 *= keep[0], g1 *= keep[1];
        h0 = keep[2], h1 = keep[3];
        v8 slope0 = g0 * h0, slope1 = g1 * h1; /* gradients of dt A */
        d_dt[t] += slope0 * decay0 + slope1 * decay1;
        sum0 += slope0 * dt[t], sum1 += slope1 * dt[t];
    }
    d_decay[0] += sum_lanes(sum0), d_decay[1] += sum_lanes(sum1);
}

/* From dy: adds to d_maps, overwrites d_x and d_dt (through exp(dt A) only, times log2(e)), adds the gradient of A to d_decay.
   scratch: 4 len numbers. */
static void scan_backward(int state_dim, int len, const real *decay, const v8 *dt, const v8 *x, const v8 *maps, const v8 *dy,
                          v8 *d_dt, v8 *d_x, v8 *d_maps, real *d_decay, v8 *scratch) {
    int bounded = is_bounded(state_dim, len, decay, dt);
    for (int t = 0; t < len; t++) d_dt[t] = d_x[t] = all(0);
    for (int pair = 0; pair < pairs(state_dim); pair++, decay += PAIR, d_decay += PAIR, maps += SLOTS * len, d_maps += SLOTS * len) {
        if (bounded) scan_backward_tile(len, decay, dt, x, maps, dy, d_dt, d_x, d_maps, d_decay, scratch, 1);
        else scan_backward_tile(len, decay, dt, x, maps, dy, d_dt, d_x, d_maps, d_decay, scratch, 0);
    }
}

#endif
