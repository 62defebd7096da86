/* The two layers, forward and backward, over one residual stream x[width][len].

   Every layer reads a normalised stream through one product, and adds to the stream through one product. What the backward pass
   needs is kept in the layer's own memory; the gradient of the stream, dx, enters as that of the layer's output and leaves as
   that of its input. */

#ifndef HYBRIDSEQ_LAYERS_H
#define HYBRIDSEQ_LAYERS_H

#include "attention.h"
#include "lanes.h"
#include "products.h"
#include "scan.h"

enum { TRANSFORMER, MAMBA, TAPS = 4 };

typedef struct {
    int32_t num_layers, width, vocab_size, seq_len, len; /* len: seq_len rounded up to a multiple of four; the rest is masked */
    int32_t window, heads, head_dim, state_dim, dt_rank, convolution, rotary_columns, tied;
    const int32_t *kinds;   /* [num_layers] */
    const real *cos, *sin;  /* [len][rotary_columns] */
} Model;

/* A piece of memory handed out from the front; with base NULL it only counts. */
typedef struct {
    char *base;
    int64_t used;
} Arena;

static void *take(Arena *arena, int64_t bytes) {
    void *place = arena->base ? arena->base + arena->used : NULL;
    arena->used += (bytes + 63) & ~(int64_t)63;
    return place;
}

#define TAKE_V8(count) take(arena, (int64_t)(count) * (int64_t)sizeof(v8))
#define TAKE_REAL(count) take(arena, (int64_t)(count) * (int64_t)sizeof(real))

/* Parameters of a layer, in the order of the flat vector; the gradients stand in a second struct of the same shape. */
typedef struct {
    real *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias;
    real *qkv, *qkv_bias, *dense, *dense_bias, *up, *up_bias, *down, *down_bias;
} TransformerParameters;

typedef struct {
    real *norm_weight, *in, *conv, *conv_bias, *x, *dt, *dt_bias, *a_log, *skip, *out;
} MambaParameters;

/* What a layer keeps. Both kinds: the normalised stream (hat, scale = 1 / deviation) and folded weights; then each its rows. */
typedef struct {
    v8 *hat, *scale;
    real *in, *in_bias, *out, *out_bias;

    v8 *read;       /* transformer: q, k, v of all heads; the derivative of the MLP's SiLU */
    v8 *mixed;      /* transformer: attention's output, then silu(up) */
    v8 *scores;     /* transformer: what attention remembers of each head */

    v8 *raw, *u;    /* mamba: what enters the convolution, what leaves its SiLU */
    v8 *slope;      /* mamba: that SiLU's derivative */
    v8 *maps;       /* mamba: rows of x_proj: dt before dt_proj, B, C */
    v8 *pairs;      /* mamba: B and C as the scan reads them */
    v8 *dt;         /* mamba: step sizes, and their derivative by what softplus reads */
    v8 *dt_slope;
    v8 *before;     /* mamba: states before each piece of the scan, [channels][pieces][whole pairs] */
    v8 *y;          /* mamba: the scan's output */
    v8 *gate;       /* mamba: SiLU(z), and its derivative, which stands behind raw */
    v8 *gate_slope;
    v8 *out_in;     /* mamba: y gate */
    real *decay;    /* mamba: A log2(e), [channels][whole pairs of states] */

    union {
        TransformerParameters transformer;
        MambaParameters mamba;
    } p, g; /* parameters and their gradients */
} Layer;

/* Shared by all layers, used by one at a time. */
typedef struct {
    v8 *d_read, *d_mixed, *d_hat, *extra;
    real *g_in, *g_bias;
} Scratch;

/* --------------------------------------------------------------------------------------------------------------------- norms */

/* hat = (x - mean) / sqrt(var + 1e-5) over the channels, or x / sqrt(mean x^2 + 1e-5) when not centred. */
static void normalise(int width, int len, int centred, const v8 *x, v8 *hat, v8 *scale) {
    const real share = (real)1 / width;
    for (int t = 0; t < len; t += 4) {
        v8 mean[4], square[4];
        for (int k = 0; k < 4; k++) mean[k] = square[k] = all(0);
        if (centred)
            for (int c = 0; c < width; c++)
                for (int k = 0; k < 4; k++) mean[k] += x[c * len + t + k];
        for (int k = 0; k < 4; k++) mean[k] *= share;
        for (int c = 0; c < width; c++)
            for (int k = 0; k < 4; k++) {
                v8 y = x[c * len + t + k] - mean[k];
                square[k] += y * y;
            }
        for (int k = 0; k < 4; k++) {
            v8 variance = square[k] * share + (real)1e-5;
            for (int lane = 0; lane < LANES; lane++) scale[t + k][lane] = 1 / SQRT(variance[lane]);
        }
        for (int c = 0; c < width; c++)
            for (int k = 0; k < 4; k++) hat[c * len + t + k] = (x[c * len + t + k] - mean[k]) * scale[t + k];
    }
}

/* dx += the gradient through the norm. */
static void normalise_backward(int width, int len, int centred, const v8 *hat, const v8 *scale, const v8 *d_hat, v8 *dx) {
    const real share = (real)1 / width;
    for (int t = 0; t < len; t += 4) {
        v8 mean[4], along[4];
        for (int k = 0; k < 4; k++) mean[k] = along[k] = all(0);
        for (int c = 0; c < width; c++)
            for (int k = 0; k < 4; k++) {
                v8 g = d_hat[c * len + t + k];
                mean[k] += g;
                along[k] += g * hat[c * len + t + k];
            }
        for (int k = 0; k < 4; k++) mean[k] = centred ? mean[k] * share : all(0), along[k] *= share;
        for (int c = 0; c < width; c++)
            for (int k = 0; k < 4; k++) {
                int at = c * len + t + k;
                dx[at] += scale[t + k] * (d_hat[at] - mean[k] - hat[at] * along[k]);
            }
    }
}

/* SiLU(x) = x sigmoid(x) into y, its derivative into x. */
static void silu(int len, v8 *x, v8 *y) {
    for (int t = 0; t < len; t++) {
        v8 s = sigmoid(x[t]), value = x[t] * s;
        y[t] = value;
        x[t] = s + value * (1 - s);
    }
}

/* --------------------------------------------------------------------------------------------------------------- transformer */

/* Turns the first n = rotary_columns rows of a head: with h = n / 2, y_c = cos x_c - sin x_{h + c} for c < n - h, and
   cos x_c + sin x_{c - (n - h)} behind; for an odd n this is no rotation (as released). Backward is the transposed map. Then every
   row is multiplied by `factor`. */
static void rotate(const Model *m, v8 *x, real factor, int backward) {
    int n = m->rotary_columns, half = n / 2, len = m->len;
    for (int t = 0; t < len && n; t++) {
        v8 before[n];
        const real *cos = m->cos + t * n, *sin = m->sin + t * n;
        for (int c = 0; c < n; c++) before[c] = x[c * len + t];
        for (int c = 0; c < n; c++) x[c * len + t] = before[c] * cos[c];
        for (int c = 0; c < n; c++) {
            int from = c < n - half ? half + c : c - (n - half);
            real s = c < n - half ? -sin[c] : sin[c];
            if (backward) x[from * len + t] += before[c] * s;
            else x[c * len + t] += before[from] * s;
        }
    }
    if (factor != 1)
        for (int i = 0; i < m->head_dim * len; i++) x[i] *= factor;
}

/* Heads of full width are summed, split ones stand side by side: d rows in both cases. */
INLINE int is_split(const Model *m) { return m->heads > 1 && m->head_dim < m->width; }

static void transformer_forward(const Model *m, Layer *l, v8 *x) {
    const TransformerParameters *p = &l->p.transformer;
    int d = m->width, len = m->len, rows = m->heads * m->head_dim;
    fold(3 * rows, d, p->norm1_weight, p->norm1_bias, p->qkv, p->qkv_bias, l->in, l->in_bias);
    fold(2 * d, d, p->norm2_weight, p->norm2_bias, p->up, p->up_bias, l->in + 3 * rows * d, l->in_bias + 3 * rows);
    for (int o = 0; o < d; o++) {
        memcpy(l->out + o * 3 * d, p->dense + o * d, sizeof(real) * d);
        memcpy(l->out + o * 3 * d + d, p->down + o * 2 * d, sizeof(real) * 2 * d);
        l->out_bias[o] = p->dense_bias[o] + p->down_bias[o];
    }
    normalise(d, len, 1, x, l->hat, l->scale);
    product(l->in, d, 1, 3 * rows + 2 * d, d, l->in_bias, l->hat, l->read, len, ASSIGN);
    silu(2 * d * len, l->read + 3 * rows * len, l->mixed + d * len);
    int step = m->head_dim * len;
    for (int head = 0; head < m->heads; head++) {
        v8 *q = l->read + head * step, *k = q + rows * len, *v = k + rows * len;
        v8 *scores = l->scores + head * attention_size(len, m->window);
        rotate(m, q, (real)LOG2E / SQRT((real)m->head_dim), 0);
        rotate(m, k, 1, 0);
        attention_forward(len, m->head_dim, m->window, q, k, v, scores, l->mixed + (is_split(m) ? head * step : 0),
                          head && !is_split(m) ? ADD : ASSIGN);
    }
    product(l->out, 3 * d, 1, d, 3 * d, l->out_bias, l->mixed, x, len, ADD);
}

static void transformer_backward(const Model *m, Layer *l, Scratch *s, v8 *dx) {
    const TransformerParameters *p = &l->p.transformer;
    TransformerParameters *g = &l->g.transformer;
    int d = m->width, len = m->len, rows = m->heads * m->head_dim, reads = 3 * rows + 2 * d;
    outer(g->dense, d, d, d, dx, l->mixed, len);
    outer(g->down, 2 * d, d, 2 * d, dx, l->mixed + d * len, len);
    outer_bias(g->dense_bias, d, dx, len);
    for (int o = 0; o < d; o++) g->down_bias[o] += g->dense_bias[o];
    product(l->out, 1, 3 * d, 3 * d, d, NULL, dx, s->d_mixed, len, ASSIGN);
    v8 *d_up = s->d_read + 3 * rows * len;
    for (int i = 0; i < 2 * d * len; i++) d_up[i] = s->d_mixed[d * len + i] * l->read[3 * rows * len + i];
    int step = m->head_dim * len;
    real scale = 1 / SQRT((real)m->head_dim);
    for (int head = 0; head < m->heads; head++) {
        v8 *q = l->read + head * step, *dq = s->d_read + head * step;
        v8 *scores = l->scores + head * attention_size(len, m->window);
        attention_backward(len, m->head_dim, m->window, scale, q, q + rows * len, q + 2 * rows * len, scores,
                           s->d_mixed + (is_split(m) ? head * step : 0), dq, dq + rows * len, dq + 2 * rows * len, s->extra);
        rotate(m, dq, 1, 1);
        rotate(m, dq + rows * len, 1, 1);
    }
    memset(s->g_in, 0, sizeof(real) * reads * d);
    memset(s->g_bias, 0, sizeof(real) * reads);
    outer(s->g_in, d, reads, d, s->d_read, l->hat, len);
    outer_bias(s->g_bias, reads, s->d_read, len);
    unfold(3 * rows, d, p->norm1_weight, p->norm1_bias, p->qkv, s->g_in, s->g_bias, g->norm1_weight, g->norm1_bias, g->qkv,
           g->qkv_bias);
    unfold(2 * d, d, p->norm2_weight, p->norm2_bias, p->up, s->g_in + 3 * rows * d, s->g_bias + 3 * rows, g->norm2_weight,
           g->norm2_bias, g->up, g->up_bias);
    product(l->in, 1, d, d, reads, NULL, s->d_read, s->d_hat, len, ASSIGN);
    normalise_backward(d, len, 1, l->hat, l->scale, s->d_hat, dx);
}

/* --------------------------------------------------------------------------------------------------------------------- mamba */

/* Depthwise causal convolution: y[t] = bias + sum_k w[k] x[t - 3 + k]. */
static void convolve(int len, const real *w, real bias, const v8 *x, v8 *y) {
    v8 x0 = all(0), x1 = all(0), x2 = all(0);
    for (int t = 0; t < len; t++) {
        v8 x3 = x[t];
        y[t] = bias + x0 * w[0] + x1 * w[1] + x2 * w[2] + x3 * w[3];
        x0 = x1, x1 = x2, x2 = x3;
    }
}

/* From dy the gradients of x (overwritten), w and the bias (added to). */
static void convolve_backward(int len, const real *w, const v8 *x, const v8 *dy, v8 *dx, real *gw, real *gbias) {
    v8 y1 = all(0), y2 = all(0), y3 = all(0), sum[TAPS + 1];
    for (int k = 0; k <= TAPS; k++) sum[k] = all(0);
    for (int t = len - 1; t >= 0; t--) { /* y1, y2, y3: dy at t + 1, t + 2, t + 3 */
        v8 y0 = dy[t];
        dx[t] = y0 * w[3] + y1 * w[2] + y2 * w[1] + y3 * w[0];
        sum[3] += y0 * x[t], sum[2] += y1 * x[t], sum[1] += y2 * x[t], sum[0] += y3 * x[t], sum[TAPS] += y0;
        y3 = y2, y2 = y1, y1 = y0;
    }
    for (int k = 0; k < TAPS; k++) gw[k] += sum_lanes(sum[k]);
    *gbias += sum_lanes(sum[TAPS]);
}

/* decay = -exp(A_log) log2(e), a row for each channel, filled up with zeros to whole pairs of states. */
static void decay_rates(int channels, int state_dim, const real *a_log, real *decay) {
    for (int c = 0; c < channels; c++, a_log += state_dim, decay += PAIR * pairs(state_dim))
        for (int n = 0; n < PAIR * pairs(state_dim); n += LANES) {
            real some[LANES] = {0};
            int left = state_dim - n < LANES ? state_dim - n : LANES;
            int room = PAIR * pairs(state_dim) - n < LANES ? PAIR * pairs(state_dim) - n : LANES;
            memcpy(some, a_log + n, sizeof(real) * left);
            store(some, exp2_any(load(some) * (real)LOG2E) * (real)-LOG2E);
            for (int k = left; k < room; k++) some[k] = 0;
            memcpy(decay + n, some, sizeof(real) * room);
        }
}

static void mamba_forward(const Model *m, Layer *l, Scratch *s, v8 *x) {
    const MambaParameters *p = &l->p.mamba;
    int d = m->width, len = m->len, channels = 2 * d, n = m->state_dim, rank = m->dt_rank;
    fold(2 * channels, d, p->norm_weight, NULL, p->in, NULL, l->in, NULL);
    decay_rates(channels, n, p->a_log, l->decay);
    normalise(d, len, 0, x, l->hat, l->scale);
    product(l->in, d, 1, 2 * channels, d, NULL, l->hat, l->raw, len, ASSIGN); /* raw and gate_slope are neighbours */
    silu(channels * len, l->gate_slope, l->gate);
    for (int c = 0; c < channels && m->convolution; c++) {
        convolve(len, p->conv + TAPS * c, p->conv_bias[c], l->raw + c * len, l->slope + c * len);
        silu(len, l->slope + c * len, l->u + c * len);
    }
    const v8 *u = m->convolution ? l->u : l->raw;
    product(p->x, channels, 1, rank + 2 * n, channels, NULL, u, l->maps, len, ASSIGN);
    int states = PAIR * pairs(n);
    pack_pairs(n, len, l->maps + rank * len, l->pairs);
    for (int k = 0; k < channels; k++) {
        v8 *dt = l->dt + k * len, *y = l->y + k * len, *x_k = s->extra;
        const v8 *uk = u + k * len, *gate = l->gate + k * len;
        for (int t = 0; t < len; t++) {
            v8 pre = all(p->dt_bias[k]);
            for (int r = 0; r < rank; r++) pre += p->dt[k * rank + r] * l->maps[r * len + t];
            dt[t] = softplus(pre, l->dt_slope + k * len + t);
            y[t] = p->skip[k] * uk[t];
            x_k[t] = dt[t] * uk[t];
        }
        scan_forward(n, len, l->decay + k * states, dt, x_k, l->pairs, y, l->before + k * states * pieces(len));
        for (int t = 0; t < len; t++) l->out_in[k * len + t] = y[t] * gate[t];
    }
    product(p->out, channels, 1, d, channels, NULL, l->out_in, x, len, ADD);
}

static void mamba_backward(const Model *m, Layer *l, Scratch *s, v8 *dx) {
    const MambaParameters *p = &l->p.mamba;
    MambaParameters *g = &l->g.mamba;
    int d = m->width, len = m->len, channels = 2 * d, n = m->state_dim, rank = m->dt_rank, maps = rank + 2 * n;
    const v8 *u = m->convolution ? l->u : l->raw;
    int states = PAIR * pairs(n);
    v8 *d_raw = s->d_read, *d_z = s->d_read + channels * len, *d_maps = s->extra, *d_pairs = d_maps + maps * len;
    v8 *row = d_pairs + 2 * states * len, *dy = row, *d_x = row + 2 * len, *d_dt = row + 4 * len, *xs = row + 6 * len;
    outer(g->out, channels, d, channels, dx, l->out_in, len);
    product(p->out, 1, channels, channels, d, NULL, dx, s->d_mixed, len, ASSIGN);
    memset(d_maps, 0, sizeof(v8) * (maps + 2 * states) * len);
    memset(s->g_in, 0, sizeof(real) * channels * states);
    for (int k = 0; k < channels; k += TWO) {
        for (int c = k; c < k + TWO; c++) {
            const v8 *d_out = s->d_mixed + c * len, *uk = u + c * len, *dt = l->dt + c * len;
            v8 skip = all(0), *dyk = dy + (c - k) * len, *xk = xs + (c - k) * len;
            for (int t = 0; t < len; t++) {
                dyk[t] = d_out[t] * l->gate[c * len + t];
                d_z[c * len + t] = d_out[t] * l->y[c * len + t] * l->gate_slope[c * len + t];
                skip += dyk[t] * uk[t];
                xk[t] = dt[t] * uk[t];
            }
            g->skip[c] += sum_lanes(skip);
        }
        scan_backward(n, len, l->decay + k * states, l->dt + k * len, xs, l->pairs, dy, d_dt, d_x, d_pairs, s->g_in + k * states,
                      l->before + k * states * pieces(len), row + 8 * len);
        for (int c = k; c < k + TWO; c++) {
            const v8 *uk = u + c * len, *dt = l->dt + c * len;
            v8 bias = all(0), *dyk = dy + (c - k) * len, *d_dtk = d_dt + (c - k) * len, *d_xk = d_x + (c - k) * len;
            v8 *du = s->d_mixed + c * len; /* over d_out, which has been read */
            for (int t = 0; t < len; t++) {
                d_dtk[t] = (d_dtk[t] * (real)LN2 + d_xk[t] * uk[t]) * l->dt_slope[c * len + t];
                du[t] = d_xk[t] * dt[t] + p->skip[c] * dyk[t];
                bias += d_dtk[t];
            }
            g->dt_bias[c] += sum_lanes(bias);
            for (int r = 0; r < rank; r++) {
                v8 sum = all(0);
                for (int t = 0; t < len; t++) {
                    sum += d_dtk[t] * l->maps[r * len + t];
                    d_maps[r * len + t] += p->dt[c * rank + r] * d_dtk[t];
                }
                g->dt[c * rank + r] += sum_lanes(sum);
            }
        }
    }
    for (int k = 0; k < channels; k++)
        for (int i = 0; i < n; i++) g->a_log[k * n + i] += s->g_in[k * states + i] * l->decay[k * states + i] * (real)LN2; /* A */
    unpack_pairs(n, len, d_pairs, d_maps + rank * len);
    outer(g->x, channels, maps, channels, d_maps, u, len);
    product(p->x, 1, channels, channels, maps, NULL, d_maps, s->d_mixed, len, ADD);
    for (int k = 0; k < channels; k++) {
        v8 *duk = s->d_mixed + k * len;
        if (m->convolution) {
            for (int t = 0; t < len; t++) duk[t] *= l->slope[k * len + t];
            convolve_backward(len, p->conv + TAPS * k, l->raw + k * len, duk, d_raw + k * len, g->conv + TAPS * k,
                              g->conv_bias + k);
        } else
            memcpy(d_raw + k * len, duk, sizeof(v8) * len);
    }
    memset(s->g_in, 0, sizeof(real) * 2 * channels * d);
    outer(s->g_in, d, 2 * channels, d, s->d_read, l->hat, len);
    unfold(2 * channels, d, p->norm_weight, NULL, p->in, s->g_in, NULL, g->norm_weight, NULL, g->in, NULL);
    product(l->in, 1, d, d, 2 * channels, NULL, s->d_read, s->d_hat, len, ASSIGN);
    normalise_backward(d, len, 0, l->hat, l->scale, s->d_hat, dx);
}

#endif
