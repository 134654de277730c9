/* What product.c and the tiles of each instruction set share. */

#ifndef HELIXWEB_PRODUCT_H
#define HELIXWEB_PRODUCT_H

#include "widening.h"

enum { CHUNK_ROWS = 96 }; /* rows that are run against all weights before the next */

/* One product of numbers of `kind`. */
typedef struct {
    int64_t kind, num_rows, inputs, outputs;
    int64_t row_bytes;   /* from one of `rows` to the next */
    const char *rows;    /* as the instruction set takes them; see `multiply` */
    const char *weights; /* outputs x inputs */
    const char *bias;    /* outputs, or NULL */
    char *product;       /* num_rows x outputs */
} Job;

/* Outputs [first, end) of a Job. */
void run_avx2(const void *job, int64_t first, int64_t end);
void run_avx512(const void *job, int64_t first, int64_t end);
void run_avx512_bf16(const void *job, int64_t first, int64_t end); /* of bfloat16 alone */

/* Inputs of a block: a number, or a pair of bfloat16, for each of the LANES of a sum. */
INLINE int64_t block_items(int64_t kind) { return kind == BFLOAT16 ? 2 * LANES : LANES; }

/* The first `count` of eight sums of one row, with their bias, rounded. */
INLINE void store_sums(const Job *job, int64_t kind, int64_t output, int64_t row, int64_t count,
                       __m256 sums)
{
    const int64_t item = item_bytes(kind);
    char *to = job->product + (row * job->outputs + output) * item;
    if (job->bias != NULL) {
        float bias[LANES] = {0};
        for (int64_t e = 0; e < count; e++)
            bias[e] = widened(kind, job->bias + (output + e) * item);
        sums = _mm256_add_ps(sums, _mm256_loadu_ps(bias));
    }
    if (count == LANES) {
        store_eight(kind, to, sums);
    } else {
        char items[LANES * sizeof(float)];
        store_eight(kind, items, sums);
        if (count == LANES / 2)
            memcpy(to, items, (size_t)(LANES / 2 * item));
        else
            memcpy(to, items, (size_t)(count * item));
    }
}

#endif
