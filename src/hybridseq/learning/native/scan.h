/* The selective scan of one channel of Mamba's layer, forward and backward.

   For every state number n:   h_n[t] = exp(dt[t] A_n) h_n[t-1] + dt[t] u[t] B_n[t],   y[t] = sum_n C_n[t] h_n[t],   h_n[-1] = 0.

   States go in tiles that live in registers while the time loop runs. Nothing of the states is kept for the backward pass: it
   computes a = exp(dt A) and h again, into a scratch that fits the first-level cache, which is cheaper than storing N numbers a
   channel and position. decay holds A log2(e), so that exp is a power of two. */

#ifndef HYBRIDSEQ_SCAN_H
#define HYBRIDSEQ_SCAN_H

#include "lanes.h"

INLINE void scan_forward_tile(const int states, int len, const real *decay, const v8 *dt, const v8 *u, const v8 *b, const v8 *c, v8 *y) {
    v8 h[4];
    for (int n = 0; n < states; n++) h[n] = all(0);
    for (int t = 0; t < len; t++) {
        v8 x = dt[t] * u[t], sum = y[t];
        for (int n = 0; n < states; n++) {
            h[n] = exp2_negative(dt[t] * decay[n]) * h[n] + x * b[n * len + t];
            sum += h[n] * c[n * len + t];
        }
        y[t] = sum;
    }
}

/* y += the scan's output. b and c: [state_dim][len]. */
static void scan_forward(int state_dim, int len, const real *decay, const v8 *dt, const v8 *u, const v8 *b, const v8 *c, v8 *y) {
    int n = 0;
    for (; n + 4 <= state_dim; n += 4) scan_forward_tile(4, len, decay + n, dt, u, b + n * len, c + n * len, y);
    for (; n + 2 <= state_dim; n += 2) scan_forward_tile(2, len, decay + n, dt, u, b + n * len, c + n * len, y);
    for (; n < state_dim; n++) scan_forward_tile(1, len, decay + n, dt, u, b + n * len, c + n * len, y);
}

INLINE void scan_backward_tile(const int states, int len, const real *decay, const v8 *dt, const v8 *x, const v8 *b, const v8 *c,
                               const v8 *dy, v8 *d_dt, v8 *d_x, v8 *db, v8 *dc, real *d_decay, v8 *scratch) {
    v8 h[2], g[2], d_a[2], *a = scratch, *past = scratch + 2 * len; /* past[t] = h[t - 1] */
    for (int n = 0; n < states; n++) h[n] = g[n] = d_a[n] = all(0);
    for (int t = 0; t < len; t++)
        for (int n = 0; n < states; n++) {
            past[2 * t + n] = h[n];
            a[2 * t + n] = exp2_negative(dt[t] * decay[n]);
            h[n] = a[2 * t + n] * h[n] + x[t] * b[n * len + t];
        }
    for (int t = len - 1; t >= 0; t--) {
        v8 sum_dt = d_dt[t], sum_x = d_x[t];
        for (int n = 0; n < states; n++) { /* g: gradient of h[t]; h[n] = h[t] */
            dc[n * len + t] += dy[t] * h[n];
            g[n] += dy[t] * c[n * len + t];
            db[n * len + t] += g[n] * x[t];
            sum_x += g[n] * b[n * len + t];
            g[n] *= a[2 * t + n];
            h[n] = past[2 * t + n];
            v8 exponent = g[n] * h[n]; /* gradient of dt A */
            sum_dt += exponent * decay[n];
            d_a[n] += exponent * dt[t];
        }
        d_dt[t] = sum_dt;
        d_x[t] = sum_x;
    }
    for (int n = 0; n < states; n++) d_decay[n] += sum_lanes(d_a[n]);
}

/* From dy: adds to the gradients of b and c, overwrites d_x (of x = dt u) and d_dt (through exp(dt A) only, times log2(e)), adds
   the gradient of A to d_decay. scratch: 4 len numbers. */
static void scan_backward(int state_dim, int len, const real *decay, const v8 *dt, const v8 *x, const v8 *b, const v8 *c,
                          const v8 *dy, v8 *d_dt, v8 *d_x, v8 *db, v8 *dc, real *d_decay, v8 *scratch) {
    for (int t = 0; t < len; t++) d_dt[t] = d_x[t] = all(0);
    int n = 0;
    for (; n + 2 <= state_dim; n += 2)
        scan_backward_tile(2, len, decay + n, dt, x, b + n * len, c + n * len, dy, d_dt, d_x, db + n * len, dc + n * len,
                           d_decay + n, scratch);
    for (; n < state_dim; n++)
        scan_backward_tile(1, len, decay + n, dt, x, b + n * len, c + n * len, dy, d_dt, d_x, db + n * len, dc + n * len,
                           d_decay + n, scratch);
}

#endif
