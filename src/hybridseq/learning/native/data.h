/* What a step reads: random numbers, batches of a task, dropout. Equal, number by number, to hybridseq.rng,
   hybridseq.learning.batches and the task objects; the order of the draws is written down in batches.py. */

#ifndef HYBRIDSEQ_DATA_H
#define HYBRIDSEQ_DATA_H

#include <stddef.h>

#include "lanes.h"

enum { COPYING, RECALL, MASKED = -1 };
enum { PLACE_DATA = 1, PLACE_DROPOUT = 2, PLACE_EVALUATION = 3 };

typedef struct {
    int32_t kind, num_numbers, num_words, current, first_number, key_len, skip_first; /* current: count_from == "current" */
    int32_t seq_len, content_len, marked; /* marked: BEGIN and END around the content */
    double density; /* of number tokens; negative: every token equally likely */
} Task;

/* splitmix64's step and finaliser. A key is a chain: mix(seed), then mix(key + counter) for each counter. */
INLINE uint64_t mix(uint64_t x) {
    uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

INLINE uint64_t place(uint64_t seed, uint64_t stream, uint64_t counter) { return mix(mix(mix(seed) + stream) + counter); }

/* Selective copying: label i is x[i + current - n], where #n is the last number token up to i. */
static void copying_content(const Task *task, uint64_t key, int row, int32_t *x, int32_t *label) {
    uint64_t number = mix(key), word = mix(key + 1), coin = mix(key + 2);
    int vocab = task->num_numbers + task->num_words, n = 0;
    for (int i = 0; i < task->content_len; i++) {
        uint64_t j = (uint64_t)row * task->content_len + i;
        if (task->density < 0) x[i] = (int32_t)(mix(key + j) % vocab);
        else if ((double)(mix(coin + j) >> 11) * 0x1p-53 < task->density) x[i] = (int32_t)(mix(number + j) % task->num_numbers);
        else x[i] = (int32_t)(mix(word + j) % task->num_words) + task->num_numbers;
        if (x[i] < task->num_numbers) n = x[i] + task->first_number;
        int source = i + task->current - n;
        label[i] = n > 0 && source >= 0 ? x[source] : MASKED;
    }
}

/* Multi-key recall: the token behind the last earlier occurrence of the key x[i - k + 1 .. i]. */
static void recall_content(const Task *task, uint64_t key, int row, int32_t *x, int32_t *label, int64_t *ends) {
    int k = task->key_len, begin = k - 1 + task->skip_first; /* the first key that is stored ends here */
    int64_t all_keys = 1;
    for (int j = 0; j < k; j++) all_keys *= task->num_words;
    int64_t code = 0;
    for (int i = 0; i < task->content_len; i++) {
        x[i] = (int32_t)(mix(key + (uint64_t)row * task->content_len + i) % task->num_words);
        code = (code % (all_keys / task->num_words)) * task->num_words + x[i]; /* the key that ends at i, in base num_words */
        ends[i] = code;
        label[i] = MASKED;
        for (int j = i - 1; j >= begin; j--)
            if (ends[j] == code) {
                label[i] = x[j + 1];
                break;
            }
    }
}

/* Rows of content, NULL ... or BEGIN, content, END, NULL ... and labels, [8][seq_len]. */
static void draw_batch(const Task *task, uint64_t key, int32_t *tokens, int32_t *labels, int64_t *ends) {
    int begin = task->kind == COPYING ? task->num_numbers + task->num_words : task->num_words;
    for (int row = 0; row < LANES; row++) {
        int32_t *x = tokens + row * task->seq_len, *label = labels + row * task->seq_len;
        for (int i = 0; i < task->seq_len; i++) x[i] = begin + 2, label[i] = MASKED;
        if (task->marked) x[0] = begin, x[task->content_len + 1] = begin + 1, x++, label++;
        if (task->kind == COPYING) copying_content(task, key, row, x, label);
        else recall_content(task, key, row, x, label, ends);
    }
}

/* Factors of the embedding, keep[channel][len]: 0 where a 32-bit half of a word is below rate 2^32, else 1 / (1 - rate). */
static void draw_dropout(uint64_t key, double rate, int seq_len, int len, int width, v8 *keep) {
    const uint64_t below = (uint64_t)(rate * 4294967296.0);
    const real kept = (real)(1 / (1 - rate));
    for (int c = 0; c < width; c++)
        for (int t = 0; t < seq_len; t++)
            for (int pair = 0; pair < LANES / 2; pair++) {
                uint64_t w = mix(key + (uint64_t)(t * width + c) * (LANES / 2) + pair);
                real *to = (real *)(keep + c * len + t) + 2 * pair;
                to[0] = (w & 0xFFFFFFFFu) < below ? 0 : kept;
                to[1] = (w >> 32) < below ? 0 : kept;
            }
}

#endif
