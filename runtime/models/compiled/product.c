/* Rows times a weight matrix transposed, in float32, whatever the weights are stored in.
 *
 * Weights are widened in registers, so a step reads them once and as narrow as they are: torch
 * without half-precision instructions reads them once per row, or writes a widened copy first.
 * A tile is 4 outputs of 3 rows; it sums 8 lanes along the inputs, then the lanes. Each output is
 * summed in one order, so that it depends neither on the other rows nor on the threads.
 * `library.py` calls it; whoever changes what it computes raises the edition there and here.
 */

#include "product.h"

const int64_t product_edition = 1;

void *PyInit__product(void);

/* Lets Python's build tools treat the product as an extension. */
void *PyInit__product(void) { return 0; }

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline)) AVX2

enum { FLOAT32, BFLOAT16, FLOAT16 };
enum { TILE_ROWS = 3, LANES = 8, LINE = 64 };
enum { CHUNK_ROWS = 48 }; /* rows that are run against all weights before the next */

INLINE int64_t item_bytes(int64_t kind) { return kind == FLOAT32 ? 4 : 2; }

INLINE __m256 eight(int64_t kind, const char *items)
{
    if (kind == FLOAT32)
        return _mm256_loadu_ps((const float *)items);
    __m128i halves = _mm_loadu_si128((const __m128i *)items);
    if (kind == FLOAT16)
        return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

INLINE float widened(int64_t kind, const char *item)
{
    if (kind == FLOAT32) {
        float value;
        memcpy(&value, item, sizeof value);
        return value;
    }
    uint16_t half;
    memcpy(&half, item, sizeof half);
    if (kind == FLOAT16)
        return _cvtsh_ss(half);
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rounded to nearest, ties to even. */
INLINE void store(int64_t kind, char *item, float value)
{
    if (kind == FLOAT32) {
        memcpy(item, &value, sizeof value);
        return;
    }
    uint16_t half;
    if (kind == FLOAT16) {
        half = _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
    } else {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if ((bits & 0x7fffffffu) > 0x7f800000u)
            half = (uint16_t)(bits >> 16 | 0x40); /* stays no number */
        else
            half = (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
    }
    memcpy(item, &half, sizeof half);
}

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
        __m256 lower = _mm256_hadd_ps(sums[0][t], outputs > 1 ? sums[1][t] : none);
        __m256 upper = _mm256_hadd_ps(outputs > 2 ? sums[2][t] : none,
                                      outputs > 3 ? sums[3][t] : none);
        __m256 halves = _mm256_hadd_ps(lower, upper);
        float whole[TILE_OUTPUTS];
        _mm_storeu_ps(whole, _mm_add_ps(_mm256_castps256_ps128(halves),
                                        _mm256_extractf128_ps(halves, 1)));
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

AVX2 void run_outputs(const Job *job, int64_t first, int64_t end)
{
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

int64_t product_is_supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

/* product = rows x weights transposed + bias; all of `kind`, contiguous. `inputs` is a multiple of
 * 8; `wide` is room for num_rows x inputs floats. */
void multiply(int64_t kind, int64_t threads, int64_t num_rows, int64_t inputs,
                     int64_t outputs, const char *rows, const char *weights, const char *bias,
                     float *wide, char *product)
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
    if (threads > 1)
        run_shared(&job, threads);
    else
        run_outputs(&job, 0, outputs);
}

#else

int64_t product_is_supported(void) { return 0; }

void multiply(int64_t kind, int64_t threads, int64_t num_rows, int64_t inputs,
                     int64_t outputs, const char *rows, const char *weights, const char *bias,
                     float *wide, char *product)
{
    (void)kind, (void)threads, (void)num_rows, (void)inputs, (void)outputs, (void)rows;
    (void)weights, (void)bias, (void)wide, (void)product;
}

#endif
