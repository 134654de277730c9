/* Rows times a weight matrix transposed, in float32, whatever the weights are stored in.
 *
 * Weights are widened in registers, so a step reads them once and as narrow as they are: torch
 * without half-precision instructions reads them once per row, or writes a widened copy first.
 *
 * Every output is summed in one order, whatever the other rows, the threads, the tile and the
 * instruction set: lane i of LANES adds the products of inputs i, i + LANES, i + 2 LANES, ... one
 * after another, each by a fused multiply-add; of bfloat16 those of the pairs (2 i, 2 i + 1),
 * (2 LANES + 2 i, 2 LANES + 2 i + 1), ..., the second of a pair first, as the instruction for
 * bfloat16 does. Like that instruction, products of bfloat16 take subnormal numbers for 0.
 * `lane_sums` adds the lanes.
 * `library.py` calls it; whoever changes what it computes raises the edition there and here.
 */

#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "product.h"
#include "threads.h"

#include <stddef.h>

enum { SUBNORMALS_ARE_ZERO = 0x8040 }; /* as inputs and as results, in the control register */

typedef struct {
    Job job;
    Run *run;
} Call;

AVX2 static void run_outputs(const void *told, int64_t first, int64_t end)
{
    const Call *call = told;
    const unsigned before = _mm_getcsr();
    if (call->job.kind == BFLOAT16)
        _mm_setcsr(before | SUBNORMALS_ARE_ZERO);
    call->run(&call->job, first, end);
    _mm_setcsr(before);
}

/* A row of `inputs` numbers in float32, of bfloat16 the second of each pair of a block before the
 * first; with zeros up to the end of its last block. */
AVX2 static void widen(int64_t kind, const char *row, int64_t inputs, char *wide)
{
    const int64_t items = block_items(kind), bytes = items * item_bytes(kind);
    for (; inputs > 0; inputs -= items, row += bytes) {
        char padded[LINE / 2] = {0};
        const char *block = row;
        if (inputs < items) {
            memcpy(padded, row, (size_t)(inputs * item_bytes(kind)));
            block = padded;
        }
        if (kind == BFLOAT16) {
            const __m256i pairs = _mm256_loadu_si256((const __m256i *)block);
            _mm256_storeu_si256((__m256i *)wide,
                                _mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)));
            _mm256_storeu_si256((__m256i *)wide + 1, _mm256_slli_epi32(pairs, 16));
        } else {
            _mm256_storeu_ps((float *)wide, eight(kind, block));
        }
        wide += items * (int64_t)sizeof(float);
    }
}

AVX2 void multiply(int64_t kind, int64_t instructions, int64_t threads, int64_t num_rows, int64_t inputs,
              int64_t outputs, const char *rows, const char *weights, const char *bias, char *room,
              char *product)
{
    const int64_t items = block_items(kind), blocks = (inputs + items - 1) / items;
    const int64_t item = item_bytes(kind);
    const int as_stored = kind == BFLOAT16 && instructions == WITH_AVX512_BF16;
    const int64_t row_bytes = blocks * items * (as_stored ? item : (int64_t)sizeof(float));
    Call call = {.job = {.kind = kind,
                         .num_rows = num_rows,
                         .inputs = inputs,
                         .outputs = outputs,
                         .row_bytes = row_bytes,
                         .rows = room,
                         .weights = weights,
                         .bias = bias,
                         .product = product},
                 .run = as_stored ? run_avx512_bf16
                        : instructions == WITH_AVX2 ? run_avx2
                                                    : run_avx512};
    if (as_stored && inputs % items == 0) {
        call.job.rows = rows;
    } else {
        for (int64_t row = 0; row < num_rows; row++) {
            const char *from = rows + row * inputs * item;
            char *to = room + row * row_bytes;
            if (as_stored) {
                memset(to + inputs * item, 0, (size_t)(row_bytes - inputs * item));
                memcpy(to, from, (size_t)(inputs * item));
            } else {
                widen(kind, from, inputs, to);
            }
        }
    }
    run_shared(run_outputs, &call, outputs, LANES, threads);
}

#endif
