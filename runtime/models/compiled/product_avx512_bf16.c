/* Tiles of a product of bfloat16 by instructions for it, which sum as those of the other sets. */

#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <stddef.h>

#include "product.h"

#define TARGET AVX512_BF16
#include "product_avx512.h"

INLINE int steps(int64_t kind) { return (void)kind, 1; }

INLINE_512 __m512 weights_of(int64_t kind, const char *const *blocks, int v, int step)
{
    (void)kind, (void)step;
    return _mm512_castsi512_ps(both(blocks, v));
}

INLINE_512 __m512 row_of(int64_t kind, const char *block, int step)
{
    (void)kind, (void)step;
    return _mm512_castsi512_ps(twice(block));
}

/* Of each pair the second first, each rounded as a fused multiply-add is. */
INLINE_512 __m512 multiply_add(__m512 weights, __m512 row, __m512 sums)
{
    return _mm512_dpbf16_ps(sums, (__m512bh)weights, (__m512bh)row);
}

INLINE int64_t row_block_bytes(int64_t kind)
{
    return block_items(kind) * item_bytes(kind);
}

/* Up to here memory is what a product waits for. */
enum { MOST_ALONE = 2 };

#include "product_tile.h"

AVX512_BF16 void run_avx512_bf16(const void *job, int64_t first, int64_t end)
{
    outputs_of(job, BFLOAT16, first, end);
}

#endif
