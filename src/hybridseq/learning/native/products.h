/* The three products of a linear map y = W x + b at every position: forward, backward to x, backward to W.

   Activations are x[channel][position], `len` positions (a multiple of four) of eight lanes; weights are plain numbers,
   broadcast. Each product works on tiles of 3 x 4 sums that stay in registers: twelve accumulators, three operands, and one that
   passes by. */

#ifndef HYBRIDSEQ_PRODUCTS_H
#define HYBRIDSEQ_PRODUCTS_H

#include "lanes.h"

/* How many rows the next tile takes of `left` remaining: threes, but 2 + 2 rather than 3 + 1. */
INLINE int tile_rows(int left) { return left == 4 ? 2 : left < 3 ? left : 3; }

enum { ASSIGN, ADD };

INLINE void product_tile(const int rows, const real *w, long row, long column, int in, const real *b, const v8 *x, v8 *y,
                         long len, int mode) {
    v8 sum[3][4], weight[3];
    for (int o = 0; o < rows; o++)
        for (int k = 0; k < 4; k++) {
            sum[o][k] = all(b ? b[o] : 0);
            if (mode == ADD) sum[o][k] += y[o * len + k];
        }
    for (int i = 0; i < in; i++, w += column, x += len) {
        for (int o = 0; o < rows; o++) weight[o] = all(w[o * row]);
        for (int k = 0; k < 4; k++)
            for (int o = 0; o < rows; o++) sum[o][k] += weight[o] * x[k];
    }
    for (int o = 0; o < rows; o++)
        for (int k = 0; k < 4; k++) y[o * len + k] = sum[o][k];
}

/* y[o] = b[o] + sum_i w[o * row + i * column] x[i], or that added to y. b may be NULL. With row = 1 and column = the length of a
   row, w is read transposed. */
static void product(const real *w, long row, long column, int out, int in, const real *b, const v8 *x, v8 *y, long len,
                    int mode) {
    for (long t = 0; t < len; t += 4)
        for (int o = 0, rows; o < out; o += rows) {
            const real *wo = w + o * row, *bo = b ? b + o : NULL;
            v8 *yo = y + o * len + t;
            rows = tile_rows(out - o);
            if (rows == 3) product_tile(3, wo, row, column, in, bo, x + t, yo, len, mode);
            else if (rows == 2) product_tile(2, wo, row, column, in, bo, x + t, yo, len, mode);
            else product_tile(1, wo, row, column, in, bo, x + t, yo, len, mode);
        }
}

INLINE void outer_tile(const int rows, const int columns, real *g, int row, const v8 *y, const v8 *x, long len) {
    v8 sum[3][4], slope[3];
    for (int o = 0; o < 3; o++)
        for (int i = 0; i < 4; i++) sum[o][i] = all(0);
    for (long t = 0; t < len; t++) {
        for (int o = 0; o < rows; o++) slope[o] = y[o * len + t];
        for (int i = 0; i < columns; i++)
            for (int o = 0; o < rows; o++) sum[o][i] += slope[o] * x[i * len + t];
    }
    for (int o = 0; o < rows; o++) {
        real part[4] = {0};
        add_lanes4(part, sum[o][0], sum[o][1], sum[o][2], sum[o][3]);
        for (int i = 0; i < columns; i++) g[o * row + i] += part[i];
    }
}

/* g[o * row + i] += sum over positions and sequences of y[o] x[i]: the gradient of w where y is that of the map's output. */
static void outer(real *g, int row, int out, int in, const v8 *y, const v8 *x, long len) {
    for (int o = 0, rows; o < out; o += rows) {
        rows = tile_rows(out - o);
        for (int i = 0; i < in; i += 4) {
            real *to = g + o * row + i;
            const v8 *yo = y + o * len, *xi = x + i * len;
            int columns = in - i;
            if (columns >= 4) {
                if (rows == 3) outer_tile(3, 4, to, row, yo, xi, len);
                else if (rows == 2) outer_tile(2, 4, to, row, yo, xi, len);
                else outer_tile(1, 4, to, row, yo, xi, len);
            } else
                for (int j = 0; j < columns; j++) {
                    if (rows == 3) outer_tile(3, 1, to + j, row, yo, xi + j * len, len);
                    else if (rows == 2) outer_tile(2, 1, to + j, row, yo, xi + j * len, len);
                    else outer_tile(1, 1, to + j, row, yo, xi + j * len, len);
                }
        }
    }
}

/* g[o] += sum over positions and sequences of y[o]: the gradient of a bias. */
static void outer_bias(real *g, int out, const v8 *y, int len) {
    for (int o = 0; o < out; o++) {
        v8 a = all(0), b = all(0);
        for (int t = 0; t < len; t += 2) a += y[o * len + t], b += y[o * len + t + 1];
        g[o] += sum_lanes(a + b);
    }
}

/* A norm's weight and bias go into the map behind it: W (w . x + beta) + b = W' x + b' with W' = W diag(w), b' = b + W beta.
   beta and b may be NULL; bias is where b' goes, NULL for none. */
static void fold(int out, int in, const real *w, const real *beta, const real *map, const real *b, real *folded, real *bias) {
    for (int o = 0; o < out; o++) {
        real sum = b ? b[o] : 0;
        for (int i = 0; i < in; i++) {
            folded[o * in + i] = map[o * in + i] * w[i];
            if (beta) sum += map[o * in + i] * beta[i];
        }
        if (bias) bias[o] = sum;
    }
}

/* The gradients of w, beta, map and b from those of W' and b'. NULL as in fold. */
static void unfold(int out, int in, const real *w, const real *beta, const real *map, const real *g_folded, const real *g_bias,
                   real *g_w, real *g_beta, real *g_map, real *g_b) {
    for (int o = 0; o < out; o++) {
        for (int i = 0; i < in; i++) {
            g_map[o * in + i] += g_folded[o * in + i] * w[i];
            g_w[i] += g_folded[o * in + i] * map[o * in + i];
        }
        if (beta)
            for (int i = 0; i < in; i++) {
                g_map[o * in + i] += g_bias[o] * beta[i];
                g_beta[i] += g_bias[o] * map[o * in + i];
            }
        if (g_b) g_b[o] += g_bias[o];
    }
}

#endif
