/* Registers with the lanes of two outputs. Included where TARGET is defined. */

#define VECTOR __m512
#define TILE_ROWS 6
#define INLINE_512 static inline __attribute__((always_inline)) TARGET

enum { VECTORS = 4, IN_VECTOR = 2 };

INLINE int64_t most_rows(int64_t kind) { return (void)kind, TILE_ROWS; }

/* 32 bytes of each of the two outputs of VECTOR `v`. */
INLINE_512 __m512i both(const char *const *blocks, int v)
{
    const __m512i first = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)blocks[v]));
    return _mm512_inserti64x4(first, _mm256_loadu_si256((const __m256i *)blocks[v + VECTORS]), 1);
}

/* 32 bytes of a row for both. */
INLINE_512 __m512i twice(const char *block)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)block));
}

/* Neighbouring lanes of `a`, then of `b`, added, in each quarter. */
INLINE_512 __m512 added_pairs(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

/* As `lane_sums` adds them. */
INLINE_512 __m256 row_sums(const __m512 *sums)
{
    const __m512 quarters =
        added_pairs(added_pairs(sums[0], sums[1]), added_pairs(sums[2], sums[3]));
    const __m512 swapped = _mm512_shuffle_f32x4(quarters, quarters, 0xb1);
    const __m512 both_halves = _mm512_add_ps(quarters, swapped);
    return _mm512_castps512_ps256(_mm512_shuffle_f32x4(both_halves, both_halves, 0x08));
}
