/* Tiles of a product in AVX-512. */

#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <stddef.h>

#include "product.h"

#define TARGET AVX512
#include "product_avx512.h"

INLINE int steps(int64_t kind) { return kind == BFLOAT16 ? 2 : 1; }

/* Of each pair of bfloat16 the second first, which is the upper half of 32 bits. */
INLINE_512 __m512 weights_of(int64_t kind, const char *const *blocks, int v, int step)
{
    if (kind == FLOAT16) {
        const __m128i first = _mm_loadu_si128((const __m128i *)blocks[v]);
        const __m128i second = _mm_loadu_si128((const __m128i *)blocks[v + VECTORS]);
        return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1));
    }
    const __m512i items = both(blocks, v);
    if (kind == FLOAT32)
        return _mm512_castsi512_ps(items);
    if (step == 1)
        return _mm512_castsi512_ps(_mm512_slli_epi32(items, 16));
    return _mm512_castsi512_ps(_mm512_and_si512(items, _mm512_set1_epi32((int)0xffff0000u)));
}

INLINE_512 __m512 row_of(int64_t kind, const char *block, int step)
{
    (void)kind;
    return _mm512_castsi512_ps(twice(block + step * LANES * (int64_t)sizeof(float)));
}

INLINE_512 __m512 multiply_add(__m512 weights, __m512 row, __m512 sums)
{
    return _mm512_fmadd_ps(weights, row, sums);
}

INLINE int64_t row_block_bytes(int64_t kind)
{
    return steps(kind) * LANES * (int64_t)sizeof(float);
}

/* Never a panel: widening leaves no time that it would save. */
enum { MOST_ALONE = CHUNK_ROWS };

#include "product_tile.h"

AVX512 void run_avx512(const void *told, int64_t first, int64_t end)
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
