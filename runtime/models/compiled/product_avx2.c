/* Tiles of a product in AVX2. */

#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <stddef.h>

#include "product.h"

#define TARGET AVX2
#define VECTOR __m256
#define TILE_ROWS 3

enum { VECTORS = 4, IN_VECTOR = 1 };

INLINE int steps(int64_t kind) { return kind == BFLOAT16 ? 2 : 1; }

/* What widens bfloat16 takes the registers of a third row. */
INLINE int64_t most_rows(int64_t kind) { return kind == BFLOAT16 ? 2 : TILE_ROWS; }

/* Of each pair of bfloat16 the second first, which is the upper half of 32 bits. */
INLINE __m256 weights_of(int64_t kind, const char *const *blocks, int v, int step)
{
    if (kind != BFLOAT16)
        return eight(kind, blocks[v]);
    const __m256i pairs = _mm256_loadu_si256((const __m256i *)blocks[v]);
    if (step == 1)
        return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000u)));
}

INLINE __m256 row_of(int64_t kind, const char *block, int step)
{
    (void)kind;
    return _mm256_loadu_ps((const float *)block + step * LANES);
}

INLINE __m256 multiply_add(__m256 weights, __m256 row, __m256 sums)
{
    return _mm256_fmadd_ps(weights, row, sums);
}

INLINE int64_t row_block_bytes(int64_t kind)
{
    return steps(kind) * LANES * (int64_t)sizeof(float);
}

INLINE __m256 row_sums(const __m256 *sums)
{
    return _mm256_castps128_ps256(lane_sums(sums[0], sums[1], sums[2], sums[3]));
}

/* Never a panel: widening leaves no time that it would save. */
enum { MOST_ALONE = CHUNK_ROWS };

#include "product_tile.h"

AVX2 void run_avx2(const void *told, int64_t first, int64_t end)
{
    const Job *job = told;
    if (job->kind == FLOAT32)
        outputs_of(job, FLOAT32, first, end);
    else if (job->kind == BFLOAT16)
        outputs_of(job, BFLOAT16, first, end);
    else
        outputs_of(job, FLOAT16, first, end);
}

#endif
