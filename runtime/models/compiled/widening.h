/* Numbers as they are stored, widened to float32 in registers and rounded back. */

#ifndef HELIXWEB_WIDENING_H
#define HELIXWEB_WIDENING_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX512 __attribute__((target("avx2,fma,f16c,avx512f")))
#define AVX512_BF16 __attribute__((target("avx2,fma,f16c,avx512f,avx512bf16")))
#define INLINE static inline __attribute__((always_inline)) AVX2

enum { FLOAT32, BFLOAT16, FLOAT16 };
enum { LANES = 8, LINE = 64 };

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

/* Eight, rounded to `kind` and widened again. */
INLINE __m256 rounded(int64_t kind, __m256 values)
{
    if (kind == FLOAT32)
        return values;
    if (kind == FLOAT16)
        return _mm256_cvtph_ps(_mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256 nearest =
        _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32((int)0xffff0000u)));
    const __m256 no_number = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(nearest, no_number, _mm256_cmp_ps(values, values, _CMP_UNORD_Q));
}

INLINE void store_eight(int64_t kind, char *items, __m256 values)
{
    if (kind == FLOAT32) {
        _mm256_storeu_ps((float *)items, values);
        return;
    }
    if (kind == FLOAT16) {
        _mm_storeu_si128((__m128i *)items, _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
        return;
    }
    const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(rounded(kind, values)), 16);
    _mm_storeu_si128((__m128i *)items, _mm_packus_epi32(_mm256_castsi256_si128(high),
                                                        _mm256_extracti128_si256(high, 1)));
}

/* The sums of the lanes of four, each in the same order. */
INLINE __m128 lane_sums(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

#endif
