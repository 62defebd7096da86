/* The native training step: one call trains one replica, from the random numbers to the parameters.

   The batch is the lane: eight sequences, one v8 (lanes.h). Activations are x[channel][position], parameters one flat vector in
   the order of hybridseq.learning.stack.Stack.shapes(); gradients and both moments of Adam have the same layout.

       lanes.h      v8, 2^x, logistic function, softplus, logarithm
       products.h   linear maps: forward, backward to the input, backward to the weights
       attention.h  causal softmax attention with a window
       scan.h       the selective scan of one channel
       layers.h     norms, the two layers, forward and backward
       data.h       splitmix64, tasks, dropout
       step.c       embedding, logits, loss, clipping, AdamW, schedule, evaluation; the functions that Python calls

   Built twice, in float for runs and with -DDOUBLE for tests. No global state: calls in different threads do not meet. */

#include "data.h"
#include "layers.h"
#include "lanes.h"

#ifndef SOURCE_HASH
#define SOURCE_HASH "unknown"
#endif

#define UNLABELLED -1.0 /* no mean loss is negative */
#define EXPORT __attribute__((visibility("default")))

typedef struct {
    double learning_rate, weight_decay, beta1, beta2, eps, clip, dropout;
    int64_t seed;
    int32_t total, warm_up;
} Recipe;

typedef struct {
    Model model;
    Layer *layers;
    Scratch scratch;
    real *embedding, *norm_weight, *norm_bias, *unembedding, *g_embedding, *g_norm_weight, *g_norm_bias, *g_unembedding;
    real *out, *out_bias, *g_out, *g_out_bias; /* the last norm folded into the unembedding */
    v8 *x, *hat, *scale, *logits, *keep;
    int32_t *tokens, *labels, *lane_tokens; /* [8][seq_len]; lane_tokens: [len][8] */
    real *table;                            /* [vocab_size][8] */
    int64_t *ends;
    real *gradient;
} Net;

/* ------------------------------------------------------------------------------------------------------------- memory, views */

static int max_int(int a, int b) { return a > b ? a : b; }

static real *next(real **at, int64_t count) {
    real *here = *at;
    *at += count;
    return here;
}

static void view_transformer(const Model *m, TransformerParameters *p, real **at) {
    int d = m->width, rows = 3 * m->heads * m->head_dim;
    p->norm1_weight = next(at, d), p->norm1_bias = next(at, d), p->norm2_weight = next(at, d), p->norm2_bias = next(at, d);
    p->qkv = next(at, rows * d), p->qkv_bias = next(at, rows), p->dense = next(at, d * d), p->dense_bias = next(at, d);
    p->up = next(at, 2 * d * d), p->up_bias = next(at, 2 * d), p->down = next(at, 2 * d * d), p->down_bias = next(at, d);
}

static void view_mamba(const Model *m, MambaParameters *p, real **at) {
    int d = m->width, channels = 2 * d, maps = m->dt_rank + 2 * m->state_dim;
    p->norm_weight = next(at, d), p->in = next(at, 2 * channels * d), p->conv = next(at, channels * TAPS);
    p->conv_bias = next(at, channels), p->x = next(at, maps * channels), p->dt = next(at, channels * m->dt_rank);
    p->dt_bias = next(at, channels), p->a_log = next(at, channels * m->state_dim), p->skip = next(at, channels);
    p->out = next(at, d * channels);
}

/* Points the net at a flat vector and at one of gradients; returns its length. */
static int64_t view(Net *net, real *p, real *g) {
    const Model *m = &net->model;
    real *start = p;
    int table = m->vocab_size * m->width;
    net->embedding = next(&p, table), net->g_embedding = next(&g, table);
    for (int i = 0; i < m->num_layers; i++) {
        Layer *l = net->layers + i;
        if (m->kinds[i] == TRANSFORMER) view_transformer(m, &l->p.transformer, &p), view_transformer(m, &l->g.transformer, &g);
        else view_mamba(m, &l->p.mamba, &p), view_mamba(m, &l->g.mamba, &g);
    }
    net->norm_weight = next(&p, m->width), net->g_norm_weight = next(&g, m->width);
    net->norm_bias = next(&p, m->width), net->g_norm_bias = next(&g, m->width);
    net->unembedding = m->tied ? net->embedding : next(&p, table);
    net->g_unembedding = m->tied ? net->g_embedding : next(&g, table);
    return p - start;
}

static void place_layer(const Model *m, int kind, Layer *l, Arena *arena) {
    int d = m->width, len = m->len, channels = 2 * d, n = m->state_dim, rows = m->heads * m->head_dim;
    l->hat = TAKE_V8(d * len), l->scale = TAKE_V8(len);
    if (kind == TRANSFORMER) {
        l->in = TAKE_REAL((3 * rows + 2 * d) * d), l->in_bias = TAKE_REAL(3 * rows + 2 * d);
        l->out = TAKE_REAL(3 * d * d), l->out_bias = TAKE_REAL(d);
        l->read = TAKE_V8((3 * rows + 2 * d) * len), l->mixed = TAKE_V8(3 * d * len);
        l->scores = TAKE_V8(m->heads * attention_size(len, m->window));
        return;
    }
    l->in = TAKE_REAL(2 * channels * d), l->decay = TAKE_REAL(channels * PAIR * pairs(n));
    l->raw = TAKE_V8(2 * channels * len), l->gate_slope = l->raw ? l->raw + channels * len : NULL;
    l->slope = TAKE_V8(channels * len), l->u = TAKE_V8(channels * len), l->maps = TAKE_V8((m->dt_rank + 2 * n) * len);
    l->dt = TAKE_V8(channels * len), l->dt_slope = TAKE_V8(channels * len), l->y = TAKE_V8(channels * len);
    l->before = TAKE_V8(channels * pieces(len) * PAIR * pairs(n));
    l->pairs = TAKE_V8(SLOTS * pairs(n) * len), l->gate = TAKE_V8(channels * len), l->out_in = TAKE_V8(channels * len);
}

/* Lays everything out behind `memory` (64-byte aligned), or only counts bytes where that is NULL. */
static int64_t place_net(const Model *m, Net *net, char *memory) {
    Arena place = {memory, 0}, *arena = &place;
    Layer spare = {0};
    int d = m->width, len = m->len, v = m->vocab_size, rows = m->heads * m->head_dim;
    int reads = 0, mixed = 0, extra = 0, maps = m->dt_rank + 2 * m->state_dim, states = PAIR * pairs(m->state_dim), g_in = 0;
    net->model = *m;
    net->layers = take(arena, sizeof(Layer) * m->num_layers);
    for (int i = 0; i < m->num_layers; i++) {
        place_layer(m, m->kinds[i], memory ? net->layers + i : &spare, arena);
        int transformer = m->kinds[i] == TRANSFORMER;
        reads = max_int(reads, transformer ? 3 * rows + 2 * d : 4 * d);
        mixed = max_int(mixed, transformer ? 3 * d : 2 * d);
        extra = max_int(extra, transformer ? BLOCK * (len + m->head_dim)
                                           : (maps + 2 * states + 4 * TWO) * len + scan_scratch(m->state_dim));
        g_in = max_int(g_in, transformer ? (3 * rows + 2 * d) * d : max_int(4 * d * d, 2 * d * states));
    }
    net->scratch = (Scratch){TAKE_V8(reads * len), TAKE_V8(mixed * len), TAKE_V8(d * len), TAKE_V8(extra),
                             TAKE_REAL(g_in), TAKE_REAL(reads)};
    net->out = TAKE_REAL(v * d), net->out_bias = TAKE_REAL(v), net->g_out = TAKE_REAL(v * d), net->g_out_bias = TAKE_REAL(v);
    net->x = TAKE_V8(d * len), net->hat = TAKE_V8(d * len), net->scale = TAKE_V8(len), net->logits = TAKE_V8(v * len);
    net->keep = TAKE_V8(d * len);
    net->tokens = take(arena, sizeof(int32_t) * LANES * m->seq_len);
    net->labels = take(arena, sizeof(int32_t) * LANES * m->seq_len);
    net->lane_tokens = take(arena, sizeof(int32_t) * LANES * len), net->table = TAKE_REAL(LANES * v);
    net->ends = take(arena, sizeof(int64_t) * m->seq_len);
    return arena->used;
}

/* ------------------------------------------------------------------------------------------------------- forward, backward */

/* The tokens with the sequence as the last index, as in a v8; positions behind the end read token 0. */
static void transpose_tokens(Net *net) {
    const Model *m = &net->model;
    for (int t = 0; t < m->seq_len; t++)
        for (int lane = 0; lane < LANES; lane++) net->lane_tokens[t * LANES + lane] = net->tokens[lane * m->seq_len + t];
}

static void embed(Net *net, const v8 *keep) {
    const Model *m = &net->model;
    transpose_tokens(net);
    for (int c = 0; c < m->width; c++) {
        real *table = net->table, *x = (real *)(net->x + c * m->len);
        for (int v = 0; v < m->vocab_size; v++) table[v] = net->embedding[v * m->width + c];
        for (int i = 0; i < m->len * LANES; i++) x[i] = table[net->lane_tokens[i]];
        for (int t = 0; t < m->len && keep; t++) net->x[c * m->len + t] *= keep[c * m->len + t];
    }
}

/* One table of sums for each lane, so that equal tokens side by side do not wait for each other. */
static void embed_backward(Net *net, const v8 *keep, v8 *dx) {
    const Model *m = &net->model;
    for (int c = 0; c < m->width; c++) {
        real *table = net->table, *g = (real *)(dx + c * m->len);
        for (int t = 0; t < m->len && keep; t++) dx[c * m->len + t] *= keep[c * m->len + t];
        memset(table, 0, sizeof(real) * LANES * m->vocab_size);
        for (int t = 0; t < m->seq_len; t++)
            for (int lane = 0; lane < LANES; lane++)
                table[net->lane_tokens[t * LANES + lane] * LANES + lane] += g[t * LANES + lane];
        for (int v = 0; v < m->vocab_size; v++) net->g_embedding[v * m->width + c] += sum_lanes(load(table + v * LANES));
    }
}

/* The logits of net->tokens, [vocab_size][len]. */
static void forward(Net *net, const v8 *keep) {
    const Model *m = &net->model;
    int d = m->width, v = m->vocab_size;
    embed(net, keep);
    for (int i = 0; i < m->num_layers; i++) {
        if (m->kinds[i] == TRANSFORMER) transformer_forward(m, net->layers + i, net->x);
        else mamba_forward(m, net->layers + i, &net->scratch, net->x);
    }
    normalise(d, m->len, 1, net->x, net->hat, net->scale);
    fold(v, d, net->norm_weight, net->norm_bias, net->unembedding, NULL, net->out, net->out_bias);
    product(net->out, d, 1, v, d, net->out_bias, net->hat, net->logits, m->len, ASSIGN);
}

/* Mean cross-entropy over the positions that carry a label; their gradient replaces the logits. UNLABELLED where none does. */
static double loss_and_slope(Net *net) {
    const Model *m = &net->model;
    int len = m->len, valid = 0;
    double loss = 0;
    for (int i = 0; i < LANES * m->seq_len; i++) valid += net->labels[i] >= 0;
    const real share = valid ? (real)1 / valid : 0;
    for (int t = 0; t < len; t++) {
        v8 *z = net->logits + t, most = z[0], sum = all(0), weight = all(0);
        v8 right = all(0);
        for (int lane = 0; lane < LANES && t < m->seq_len; lane++) {
            int label = net->labels[lane * m->seq_len + t];
            if (label >= 0) weight[lane] = share, right[lane] = z[label * len][lane];
        }
        for (int v = 1; v < m->vocab_size; v++) most = larger(most, z[v * len]);
        for (int v = 0; v < m->vocab_size; v++) sum += z[v * len] = exp2_negative((z[v * len] - most) * (real)LOG2E);
        v8 nll = logarithm(sum) + most - right;
        for (int lane = 0; lane < LANES; lane++) loss += weight[lane] != 0 ? nll[lane] : 0;
        sum = weight / sum;
        for (int v = 0; v < m->vocab_size; v++) z[v * len] *= sum;
        for (int lane = 0; lane < LANES && t < m->seq_len; lane++) {
            int label = net->labels[lane * m->seq_len + t];
            if (label >= 0) z[label * len][lane] -= share;
        }
    }
    return valid ? loss / valid : UNLABELLED;
}

/* From the gradient of the logits to that of every parameter, which is added to the vector that the net views. */
static void backward(Net *net, const v8 *keep) {
    const Model *m = &net->model;
    int d = m->width, len = m->len, v = m->vocab_size;
    v8 *dx = net->x; /* the stream is no longer needed */
    memset(net->g_out, 0, sizeof(real) * v * d);
    memset(net->g_out_bias, 0, sizeof(real) * v);
    outer(net->g_out, d, v, d, net->logits, net->hat, len);
    outer_bias(net->g_out_bias, v, net->logits, len);
    unfold(v, d, net->norm_weight, net->norm_bias, net->unembedding, net->g_out, net->g_out_bias, net->g_norm_weight,
           net->g_norm_bias, net->g_unembedding, NULL);
    product(net->out, 1, d, d, v, NULL, net->logits, net->scratch.d_hat, len, ASSIGN);
    memset(dx, 0, sizeof(v8) * d * len);
    normalise_backward(d, len, 1, net->hat, net->scale, net->scratch.d_hat, dx);
    for (int i = m->num_layers - 1; i >= 0; i--) {
        if (m->kinds[i] == TRANSFORMER) transformer_backward(m, net->layers + i, &net->scratch, dx);
        else mamba_backward(m, net->layers + i, &net->scratch, dx);
    }
    embed_backward(net, keep, dx);
}

static double step(Net *net, const v8 *keep, real *g, int64_t size) {
    memset(g, 0, sizeof(real) * size);
    forward(net, keep);
    double loss = loss_and_slope(net);
    backward(net, keep);
    return loss;
}

/* ---------------------------------------------------------------------------------------------------------------- optimiser */

static double learning_rate(const Recipe *r, int64_t i) {
    if (i < r->warm_up) return r->learning_rate * (double)i / r->warm_up;
    int64_t left = r->total > i ? r->total - i : 0;
    return r->learning_rate * (double)left / (r->total - r->warm_up);
}

/* Scales the gradient to a norm of at most `clip`, then AdamW with decoupled decay and bias correction; i counts from 0. */
static void update(const Recipe *r, int64_t i, int64_t size, real *p, const real *g, real *m, real *v) {
    double square = 0, rate = learning_rate(r, i), correction1 = 1, correction2 = 1;
    for (int64_t k = 0; k < size; k++) square += (double)g[k] * g[k];
    double clip = r->clip / (__builtin_sqrt(square) + 1e-6);
    correction1 -= __builtin_pow(r->beta1, (double)(i + 1)), correction2 -= __builtin_pow(r->beta2, (double)(i + 1));
    const real scale = (real)(clip < 1 ? clip : 1), decay = (real)(1 - rate * r->weight_decay), eps = (real)r->eps;
    const real b1 = (real)r->beta1, b2 = (real)r->beta2, rest1 = (real)(1 - r->beta1), rest2 = (real)(1 - r->beta2);
    const real rate1 = (real)(rate / correction1), root2 = (real)(1 / __builtin_sqrt(correction2));
    for (int64_t k = 0; k < size; k++) {
        real s = g[k] * scale;
        m[k] = b1 * m[k] + rest1 * s;
        v[k] = b2 * v[k] + rest2 * s * s;
        p[k] = p[k] * decay - rate1 * m[k] / (SQRT(v[k]) * root2 + eps);
    }
}

/* ------------------------------------------------------------------------------------------------------------ for the caller */

EXPORT const char *hybridseq_source(void) { return SOURCE_HASH; }
EXPORT int hybridseq_real_bytes(void) { return sizeof(real); }

/* Whether this processor has the instructions that the code was compiled for. */
EXPORT int hybridseq_processor(void) {
#if defined(__x86_64__) && defined(__AVX2__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 1;
#endif
}

/* Bytes of work memory for the calls below: 64-byte aligned, and zero when it is first used. */
EXPORT int64_t hybridseq_work_bytes(const Model *m) {
    Net net;
    return place_net(m, &net, NULL);
}

/* Length of the flat vector. work: hybridseq_work_bytes. */
EXPORT int64_t hybridseq_size(const Model *m, char *work) {
    Net net;
    place_net(m, &net, work);
    return view(&net, NULL, NULL);
}

/* Loss and gradient of given rows. keep: factors [8][seq_len][width] of the embedding, or NULL. g: overwritten. */
EXPORT double hybridseq_gradient(const Model *m, real *p, const int32_t *tokens, const int32_t *labels, const real *keep, real *g,
                                 char *work) {
    unsigned mode = flush_subnormals();
    Net net;
    place_net(m, &net, work);
    int64_t size = view(&net, p, g);
    memcpy(net.tokens, tokens, sizeof(int32_t) * LANES * m->seq_len);
    memcpy(net.labels, labels, sizeof(int32_t) * LANES * m->seq_len);
    if (keep)
        for (int lane = 0; lane < LANES; lane++)
            for (int t = 0; t < m->seq_len; t++)
                for (int c = 0; c < m->width; c++)
                    net.keep[c * m->len + t][lane] = keep[(lane * m->seq_len + t) * m->width + c];
    double loss = step(&net, keep ? net.keep : NULL, g, size);
    restore_subnormals(mode);
    return loss;
}

/* Logits of given rows, to[8][seq_len][vocab_size]. */
EXPORT void hybridseq_logits(const Model *m, real *p, const int32_t *tokens, real *to, char *work) {
    unsigned mode = flush_subnormals();
    Net net;
    place_net(m, &net, work);
    view(&net, p, p);
    memcpy(net.tokens, tokens, sizeof(int32_t) * LANES * m->seq_len);
    forward(&net, NULL);
    for (int lane = 0; lane < LANES; lane++)
        for (int t = 0; t < m->seq_len; t++)
            for (int v = 0; v < m->vocab_size; v++)
                to[(lane * m->seq_len + t) * m->vocab_size + v] = net.logits[v * m->len + t][lane];
    restore_subnormals(mode);
}

/* Steps first .. first + steps - 1 of a run. p, first and second moments: changed in place. losses: [steps]. g: [size]. */
EXPORT void hybridseq_train(const Model *m, const Task *task, const Recipe *r, int64_t first, int64_t steps, real *p,
                            real *moment1, real *moment2, real *g, double *losses, char *work) {
    unsigned mode = flush_subnormals();
    Net net;
    place_net(m, &net, work);
    int64_t size = view(&net, p, g);
    const v8 *keep = r->dropout > 0 ? net.keep : NULL;
    for (int64_t i = first; i < first + steps; i++) {
        draw_batch(task, place(r->seed, PLACE_DATA, i), net.tokens, net.labels, net.ends);
        if (keep) draw_dropout(place(r->seed, PLACE_DROPOUT, i), r->dropout, m->seq_len, m->len, m->width, net.keep);
        losses[i - first] = step(&net, keep, g, size);
        update(r, i, size, p, g, moment1, moment2);
    }
    restore_subnormals(mode);
}

/* Adds to counts[0] the positions whose label has a strictly larger logit than every other token, to counts[1] those with a
   label, over the held-out batches first .. first + batches - 1. A comparison with NaN is false, so NaN never scores. */
EXPORT void hybridseq_evaluate(const Model *m, const Task *task, int64_t seed, int64_t first, int64_t batches, real *p,
                               int64_t *counts, char *work) {
    unsigned mode = flush_subnormals();
    Net net;
    place_net(m, &net, work);
    view(&net, p, p);
    for (int64_t i = first; i < first + batches; i++) {
        draw_batch(task, place(seed, PLACE_EVALUATION, i), net.tokens, net.labels, net.ends);
        forward(&net, NULL);
        for (int lane = 0; lane < LANES; lane++)
            for (int t = 0; t < m->seq_len; t++) {
                int label = net.labels[lane * m->seq_len + t], below = 0;
                if (label < 0) continue;
                real most = net.logits[label * m->len + t][lane];
                for (int v = 0; v < m->vocab_size; v++) below += net.logits[v * m->len + t][lane] < most;
                counts[0] += below == m->vocab_size - 1;
                counts[1]++;
            }
    }
    restore_subnormals(mode);
}

/* The rows and labels of one place (stream 1: step, stream 3: held-out batch), [8][seq_len] each. */
EXPORT void hybridseq_batch(const Task *task, int64_t seed, int64_t stream, int64_t counter, int32_t *tokens, int32_t *labels) {
    int64_t ends[task->seq_len];
    draw_batch(task, place(seed, stream, counter), tokens, labels, ends);
}

/* The factors of one step's dropout, to[width][len] of v8. */
EXPORT void hybridseq_dropout(int64_t seed, int64_t counter, double rate, int32_t seq_len, int32_t width, real *to) {
    draw_dropout(place(seed, PLACE_DROPOUT, counter), rate, seq_len, seq_len, width, (v8 *)to);
}
