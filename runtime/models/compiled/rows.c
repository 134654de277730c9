/* What a layer does to each row by itself: norm, rotary embedding, gate.
 *
 * torch's loops over half-precision numbers are slow without instructions for them, and each of its
 * functions passes over memory again. Rounded wherever torch's functions in a row would round.
 */

#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include "exponential.h"
#include "threads.h"
#include "widening.h"

#include <math.h>

enum { ROWS_AT_ONCE = 4 };

typedef struct {
    int64_t kind, width;
    float eps;
    const char *rows, *weight;
    char *product;
} Norm;

INLINE void norm_rows(const Norm *norm, int64_t kind, int64_t first, int64_t end)
{
    const int64_t bytes = item_bytes(kind), width = norm->width;
    for (int64_t row = first; row < end; row++) {
        const char *in = norm->rows + row * width * bytes;
        char *out = norm->product + row * width * bytes;
        __m256 sums = _mm256_setzero_ps();
        for (int64_t d = 0; d < width; d += LANES) {
            __m256 wide = eight(kind, in + d * bytes);
            sums = _mm256_fmadd_ps(wide, wide, sums);
        }
        const __m256 none = _mm256_setzero_ps();
        const float sum = _mm_cvtss_f32(lane_sums(sums, none, none, none));
        const __m256 scale = _mm256_set1_ps(1.0f / sqrtf(sum / (float)width + norm->eps));
        for (int64_t d = 0; d < width; d += LANES) {
            __m256 scaled = rounded(kind, _mm256_mul_ps(eight(kind, in + d * bytes), scale));
            store_eight(kind, out + d * bytes,
                        _mm256_mul_ps(eight(kind, norm->weight + d * bytes), scaled));
        }
    }
}

AVX2 static void run_norm(const void *told, int64_t first, int64_t end)
{
    const Norm *norm = told;
    if (norm->kind == FLOAT32)
        norm_rows(norm, FLOAT32, first, end);
    else if (norm->kind == BFLOAT16)
        norm_rows(norm, BFLOAT16, first, end);
    else
        norm_rows(norm, FLOAT16, first, end);
}

void rms_norm(int64_t kind, int64_t threads, int64_t num_rows, int64_t width, float eps,
              const char *rows, const char *weight, char *product)
{
    const Norm norm = {.kind = kind,
                       .width = width,
                       .eps = eps,
                       .rows = rows,
                       .weight = weight,
                       .product = product};
    run_shared(run_norm, &norm, num_rows, ROWS_AT_ONCE, threads);
}

typedef struct {
    int64_t kind, width;
    const char *gate_up;
    char *product;
} Gate;

/* x / (1 + exp(-x)) */
INLINE __m256 silu(__m256 x)
{
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    const __m256 power = exponential(_mm256_or_ps(x, sign)); /* of -|x| */
    const __m256 share = _mm256_div_ps(x, _mm256_add_ps(one, power));
    return _mm256_blendv_ps(share, _mm256_mul_ps(share, power), x); /* where x < 0 */
}

INLINE void gate_rows(const Gate *gate, int64_t kind, int64_t first, int64_t end)
{
    const int64_t bytes = item_bytes(kind), width = gate->width;
    for (int64_t row = first; row < end; row++) {
        const char *in = gate->gate_up + 2 * row * width * bytes;
        char *out = gate->product + row * width * bytes;
        for (int64_t i = 0; i < width; i += LANES) {
            __m256 open = rounded(kind, silu(eight(kind, in + i * bytes)));
            store_eight(kind, out + i * bytes,
                        _mm256_mul_ps(open, eight(kind, in + (width + i) * bytes)));
        }
    }
}

AVX2 static void run_gate(const void *told, int64_t first, int64_t end)
{
    const Gate *gate = told;
    if (gate->kind == FLOAT32)
        gate_rows(gate, FLOAT32, first, end);
    else if (gate->kind == BFLOAT16)
        gate_rows(gate, BFLOAT16, first, end);
    else
        gate_rows(gate, FLOAT16, first, end);
}

void silu_gate(int64_t kind, int64_t threads, int64_t num_rows, int64_t width, const char *gate_up,
               char *product)
{
    const Gate gate = {.kind = kind, .width = width, .gate_up = gate_up, .product = product};
    run_shared(run_gate, &gate, num_rows, ROWS_AT_ONCE, threads);
}

typedef struct {
    int64_t kind, heads, head_size, stride;
    const char *rows, *cos, *sin;
    char *product;
} Rotation;

INLINE void rotate_rows(const Rotation *all, int64_t kind, int64_t first, int64_t end)
{
    const int64_t bytes = item_bytes(kind), half = all->head_size / 2;
    for (int64_t row = first; row < end; row++) {
        const char *cos = all->cos + row * all->head_size * bytes;
        const char *sin = all->sin + row * all->head_size * bytes;
        for (int64_t head = 0; head < all->heads; head++) {
            const char *in = all->rows + (row * all->stride + head * all->head_size) * bytes;
            char *out = all->product + (row * all->heads + head) * all->head_size * bytes;
            for (int64_t h = 0; h < half; h += LANES) {
                const __m256 low = eight(kind, in + h * bytes);
                const __m256 high = eight(kind, in + (half + h) * bytes);
                const __m256 by = rounded(kind, _mm256_mul_ps(low, eight(kind, cos + h * bytes)));
                const __m256 away =
                    rounded(kind, _mm256_mul_ps(high, eight(kind, sin + h * bytes)));
                store_eight(kind, out + h * bytes, _mm256_sub_ps(by, away));
                const __m256 with = rounded(
                    kind, _mm256_mul_ps(high, eight(kind, cos + (half + h) * bytes)));
                const __m256 across =
                    rounded(kind, _mm256_mul_ps(low, eight(kind, sin + (half + h) * bytes)));
                store_eight(kind, out + (half + h) * bytes, _mm256_add_ps(with, across));
            }
        }
    }
}

AVX2 static void run_rotation(const void *told, int64_t first, int64_t end)
{
    const Rotation *all = told;
    if (all->kind == FLOAT32)
        rotate_rows(all, FLOAT32, first, end);
    else if (all->kind == BFLOAT16)
        rotate_rows(all, BFLOAT16, first, end);
    else
        rotate_rows(all, FLOAT16, first, end);
}

void rotate(int64_t kind, int64_t threads, int64_t num_rows, int64_t heads, int64_t head_size,
            int64_t stride, const char *rows, const char *cos, const char *sin, char *product)
{
    const Rotation all = {.kind = kind,
                          .heads = heads,
                          .head_size = head_size,
                          .stride = stride,
                          .rows = rows,
                          .cos = cos,
                          .sin = sin,
                          .product = product};
    run_shared(run_rotation, &all, num_rows, ROWS_AT_ONCE, threads);
}

#endif
