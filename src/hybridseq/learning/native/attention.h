/* Causal softmax attention of one head, with a window, forward and backward.

   Rows q, k, v are [head_dim][len]. Queries go in blocks of four, i = first .. first + 3, against the keys j = low .. first + 3
   that at least one of them sees. A block keeps e = exp(score - largest score) unnormalised, 4 numbers for each j, and 1 / sum.
   q comes multiplied by log2(e) / sqrt(head_dim), so that exp is a power of two. */

#ifndef HYBRIDSEQ_ATTENTION_H
#define HYBRIDSEQ_ATTENTION_H

#include "lanes.h"
#include "products.h"

enum { BLOCK = 4 };

INLINE int first_key(int first, int window) { return first - window + 1 > 0 ? first - window + 1 : 0; }

/* Numbers (v8) that the blocks of one head take: e, and 1 / sum. */
static int attention_size(int len, int window) {
    int size = len;
    for (int first = 0; first < len; first += BLOCK) size += BLOCK * (first + BLOCK - first_key(first, window));
    return size;
}

/* to[j][r] = sum_c a[c * stride + r] b[c][j] for `keys` consecutive j. */
INLINE void score_tile(const int keys, int dim, const v8 *a, long stride, const v8 *b, long len, v8 *to) {
    v8 sum[3][BLOCK], key[3];
    for (int j = 0; j < keys; j++)
        for (int r = 0; r < BLOCK; r++) sum[j][r] = all(0);
    for (int c = 0; c < dim; c++, a += stride, b += len) {
        for (int j = 0; j < keys; j++) key[j] = b[j];
        for (int r = 0; r < BLOCK; r++)
            for (int j = 0; j < keys; j++) sum[j][r] += a[r] * key[j];
    }
    for (int j = 0; j < keys; j++)
        for (int r = 0; r < BLOCK; r++) to[j * BLOCK + r] = sum[j][r];
}

INLINE void block_scores(int dim, int count, const v8 *a, long stride, const v8 *b, long len, v8 *to) {
    int j = 0;
    for (; j + 3 <= count; j += 3) score_tile(3, dim, a, stride, b + j, len, to + j * BLOCK);
    if (count - j == 2) score_tile(2, dim, a, stride, b + j, len, to + j * BLOCK);
    if (count - j == 1) score_tile(1, dim, a, stride, b + j, len, to + j * BLOCK);
}

/* to[c][r] (+)= scale[r] sum_j p[j][r] x[c][j], j = 0 .. count - 1. */
INLINE void mix_tile(const int rows, int count, const v8 *p, const v8 *x, long len, const v8 *scale, v8 *to, int mode) {
    v8 sum[3][BLOCK], value[3];
    for (int c = 0; c < rows; c++)
        for (int r = 0; r < BLOCK; r++) sum[c][r] = all(0);
    for (int j = 0; j < count; j++, p += BLOCK, x++) {
        for (int c = 0; c < rows; c++) value[c] = x[c * len];
        for (int r = 0; r < BLOCK; r++)
            for (int c = 0; c < rows; c++) sum[c][r] += p[r] * value[c];
    }
    for (int c = 0; c < rows; c++)
        for (int r = 0; r < BLOCK; r++) {
            v8 y = sum[c][r] * scale[r];
            to[c * len + r] = mode == ADD ? to[c * len + r] + y : y;
        }
}

INLINE void block_mix(int dim, int count, const v8 *p, const v8 *x, long len, const v8 *scale, v8 *to, int mode) {
    for (int c = 0, rows; c < dim; c += rows) {
        rows = tile_rows(dim - c);
        if (rows == 3) mix_tile(3, count, p, x + c * len, len, scale, to + c * len, mode);
        else if (rows == 2) mix_tile(2, count, p, x + c * len, len, scale, to + c * len, mode);
        else mix_tile(1, count, p, x + c * len, len, scale, to + c * len, mode);
    }
}

/* to[c][j] += sum_r p[j][r] x[c * stride + r], for `rows` channels c. */
INLINE void spread_tile(const int rows, int count, const v8 *p, const v8 *x, long stride, v8 *to, long len) {
    v8 sum[2], value[2][BLOCK];
    for (int c = 0; c < rows; c++)
        for (int r = 0; r < BLOCK; r++) value[c][r] = x[c * stride + r];
    for (int j = 0; j < count; j++, p += BLOCK, to++) {
        for (int c = 0; c < rows; c++) sum[c] = to[c * len];
        for (int r = 0; r < BLOCK; r++)
            for (int c = 0; c < rows; c++) sum[c] += p[r] * value[c][r];
        for (int c = 0; c < rows; c++) to[c * len] = sum[c];
    }
}

INLINE void block_spread(int dim, int count, const v8 *p, const v8 *x, long stride, v8 *to, long len) {
    int c = 0;
    for (; c + 2 <= dim; c += 2) spread_tile(2, count, p, x + c * stride, stride, to + c * len, len);
    if (c < dim) spread_tile(1, count, p, x + c * stride, stride, to + c * len, len);
}

/* Set the entries of a block that the mask hides: keys behind the query, and keys that left the window. */
INLINE void hide(int first, int low, int window, v8 *block, v8 value) {
    for (int r = 0; r < BLOCK; r++) {
        for (int j = first + r + 1; j < first + BLOCK; j++) block[(j - low) * BLOCK + r] = value;
        for (int j = low; j <= first + r - window; j++) block[(j - low) * BLOCK + r] = value;
    }
}

/* out[c] (+)= sum_j softmax_j(q . k_j) v_j. memory: attention_size() numbers that backward reads. */
static void attention_forward(int len, int dim, int window, const v8 *q, const v8 *k, const v8 *v, v8 *memory, v8 *out,
                              int mode) {
    v8 *inverse = memory, *block = memory + len;
    for (int first = 0; first < len; first += BLOCK) {
        int low = first_key(first, window), count = first + BLOCK - low;
        v8 most[BLOCK], sum[BLOCK];
        block_scores(dim, count, q + first, len, k + low, len, block);
        hide(first, low, window, block, all(-1e30f));
        for (int r = 0; r < BLOCK; r++) most[r] = block[r], sum[r] = all(0);
        for (int j = 1; j < count; j++)
            for (int r = 0; r < BLOCK; r++) most[r] = larger(most[r], block[j * BLOCK + r]);
        for (int j = 0; j < count; j++)
            for (int r = 0; r < BLOCK; r++) block[j * BLOCK + r] = exp2_negative(block[j * BLOCK + r] - most[r]);
        hide(first, low, window, block, all(0));
        for (int j = 0; j < count; j++)
            for (int r = 0; r < BLOCK; r++) sum[r] += block[j * BLOCK + r];
        for (int r = 0; r < BLOCK; r++) inverse[first + r] = 1 / sum[r];
        block_mix(dim, count, block, v + low, len, inverse + first, out + first, mode);
        block += count * BLOCK;
    }
}

/* Gradients of q (as it came in, before scaling), k and v from that of out, d_out, all [dim][len]. dq, dk and dv are overwritten.
   scale = 1 / sqrt(head_dim). scratch: (len + dim) * 4 numbers. */
static void attention_backward(int len, int dim, int window, real scale, const v8 *q, const v8 *k, const v8 *v, const v8 *memory,
                               const v8 *d_out, v8 *dq, v8 *dk, v8 *dv, v8 *scratch) {
    const v8 *inverse = memory, *e = memory + len;
    const v8 scales[BLOCK] = {all(scale), all(scale), all(scale), all(scale)};
    v8 *ds = scratch, *d = scratch + len * BLOCK;
    memset(dk, 0, sizeof(v8) * dim * len);
    memset(dv, 0, sizeof(v8) * dim * len);
    for (int first = 0; first < len; first += BLOCK) {
        int low = first_key(first, window), count = first + BLOCK - low;
        v8 mean[BLOCK];
        for (int c = 0; c < dim; c++)
            for (int r = 0; r < BLOCK; r++) d[c * BLOCK + r] = d_out[c * len + first + r] * inverse[first + r];
        block_scores(dim, count, d, BLOCK, v + low, len, ds);
        for (int r = 0; r < BLOCK; r++) mean[r] = all(0);
        for (int j = 0; j < count; j++)
            for (int r = 0; r < BLOCK; r++) mean[r] += e[j * BLOCK + r] * ds[j * BLOCK + r];
        for (int r = 0; r < BLOCK; r++) mean[r] *= inverse[first + r];
        for (int j = 0; j < count; j++)
            for (int r = 0; r < BLOCK; r++) ds[j * BLOCK + r] = e[j * BLOCK + r] * (ds[j * BLOCK + r] - mean[r]);
        block_mix(dim, count, ds, k + low, len, scales, dq + first, ASSIGN);
        block_spread(dim, count, ds, q + first, len, dk + low, len);
        block_spread(dim, count, e, d, BLOCK, dv + low, len);
        e += count * BLOCK;
    }
    for (int n = 0; n < dim * len; n++) dk[n] *= (real)LN2; /* q held scale * log2(e) */
}

#endif
