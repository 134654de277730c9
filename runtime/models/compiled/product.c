/* Rows times a weight matrix transposed, in float32, whatever the weights are stored in.
 *
 * Weights are widened in registers, so a step reads them once and as narrow as they are: torch
 * without half-precision instructions reads them once per row, or writes a widened copy first.
 * A tile is 4 outputs of 3 rows; it sums 8 lanes along the inputs, then the lanes. Each output is
 * summed in one order, so that it depends neither on the other rows nor on the threads.
 * `library.py` calls it; whoever changes what it computes raises the edition there and here.
 */

#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "threads.h"
#include "widening.h"

#include <stddef.h>

enum { TILE_OUTPUTS = 4, TILE_ROWS = 3 };
enum { CHUNK_ROWS = 48 }; /* rows that are run against all weights before the next */

typedef struct {
    int64_t kind, num_rows, inputs, outputs;
    const float *rows;   /* num_rows x inputs */
    const char *weights; /* outputs x inputs */
    const char *bias;    /* outputs, or NULL */
    char *product;       /* num_rows x outputs */
} Job;

/* `outputs` x `rows` of the product, at most a tile; `next`: weights to fetch meanwhile. */
INLINE void tile(const Job *job, int64_t kind, int64_t output, int64_t row, const int outputs,
                 const int rows, const char *next)
{
    const int64_t inputs = job->inputs, item = item_bytes(kind), width = inputs * item;
    const char *weights = job->weights + output * width;
    const float *wide = job->rows + row * inputs;
    __m256 sums[TILE_OUTPUTS][TILE_ROWS], part[TILE_ROWS];
    for (int e = 0; e < outputs; e++)
        for (int t = 0; t < rows; t++)
            sums[e][t] = _mm256_setzero_ps();
    for (int64_t d = 0; d < inputs; d += LANES) {
        const char *at = weights + d * item;
        if (next != NULL && d * item % LINE == 0)
            for (int e = 0; e < outputs; e++)
                _mm_prefetch(next + d * item + e * width, _MM_HINT_T0);
        for (int t = 0; t < rows; t++)
            part[t] = _mm256_loadu_ps(wide + t * inputs + d);
        for (int e = 0; e < outputs; e++) {
            __m256 wide = eight(kind, at + e * width);
            for (int t = 0; t < rows; t++)
                sums[e][t] = _mm256_fmadd_ps(wide, part[t], sums[e][t]);
        }
    }
    for (int t = 0; t < rows; t++) {
        const __m256 none = _mm256_setzero_ps();
        float whole[TILE_OUTPUTS];
        _mm_storeu_ps(whole, lane_sums(sums[0][t], outputs > 1 ? sums[1][t] : none,
                                       outputs > 2 ? sums[2][t] : none,
                                       outputs > 3 ? sums[3][t] : none));
        for (int e = 0; e < outputs; e++) {
            if (job->bias != NULL)
                whole[e] += widened(kind, job->bias + (output + e) * item);
            store(kind, job->product + ((row + t) * job->outputs + output + e) * item, whole[e]);
        }
    }
}

/* `outputs` outputs of rows [row, end). */
INLINE void panel(const Job *job, int64_t kind, int64_t output, const int outputs, int64_t row,
                  int64_t end, const char *next)
{
    for (; row + TILE_ROWS <= end; row += TILE_ROWS, next = NULL)
        tile(job, kind, output, row, outputs, TILE_ROWS, next);
    if (end - row == 2)
        tile(job, kind, output, row, outputs, 2, next);
    else if (end - row == 1)
        tile(job, kind, output, row, outputs, 1, next);
}

INLINE void outputs_of(const Job *job, int64_t kind, int64_t first, int64_t end)
{
    const int64_t panel_bytes = TILE_OUTPUTS * job->inputs * item_bytes(kind);
    for (int64_t row = 0; row < job->num_rows; row += CHUNK_ROWS) {
        int64_t last = row + CHUNK_ROWS < job->num_rows ? row + CHUNK_ROWS : job->num_rows;
        int64_t output = first;
        for (; output + TILE_OUTPUTS <= end; output += TILE_OUTPUTS) {
            const char *next = job->weights + (output / TILE_OUTPUTS + 1) * panel_bytes;
            panel(job, kind, output, TILE_OUTPUTS, row, last,
                  output + 2 * TILE_OUTPUTS <= end ? next : NULL);
        }
        for (; output < end; output++)
            panel(job, kind, output, 1, row, last, NULL);
    }
}

/* Outputs [first, end); `first` is a multiple of TILE_OUTPUTS. */
AVX2 static void run_outputs(const void *told, int64_t first, int64_t end)
{
    const Job *job = told;
    if (job->kind == FLOAT32)
        outputs_of(job, FLOAT32, first, end);
    else if (job->kind == BFLOAT16)
        outputs_of(job, BFLOAT16, first, end);
    else
        outputs_of(job, FLOAT16, first, end);
}

AVX2 static void widen(int64_t kind, const char *rows, int64_t items, float *wide)
{
    for (int64_t item = 0; item < items; item += LANES)
        _mm256_storeu_ps(wide + item, eight(kind, rows + item * item_bytes(kind)));
}

void multiply(int64_t kind, int64_t threads, int64_t num_rows, int64_t inputs, int64_t outputs,
              const char *rows, const char *weights, const char *bias, float *wide, char *product)
{
    const Job job = {.kind = kind,
                     .num_rows = num_rows,
                     .inputs = inputs,
                     .outputs = outputs,
                     .rows = wide,
                     .weights = weights,
                     .bias = bias,
                     .product = product};
    widen(kind, rows, num_rows * inputs, wide);
    run_shared(run_outputs, &job, outputs, TILE_OUTPUTS, threads);
}

#endif
