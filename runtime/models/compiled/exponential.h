/* The exponential function in registers. */

#ifndef HELIXWEB_EXPONENTIAL_H
#define HELIXWEB_EXPONENTIAL_H

#include "widening.h"

/* e to the power of each, for what is at most 0; error below 2e-7 of it. */
INLINE __m256 exponential(__m256 power)
{
    const __m256 highest = _mm256_set1_ps(1.44269504f);
    power = _mm256_max_ps(_mm256_set1_ps(-87.0f), power); /* what is no number stays so */
    __m256 twos = _mm256_round_ps(_mm256_mul_ps(power, highest),
                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 rest = _mm256_fnmadd_ps(twos, _mm256_set1_ps(0.693359375f), power);
    rest = _mm256_fnmadd_ps(twos, _mm256_set1_ps(-2.12194440e-4f), rest);
    __m256 sum = _mm256_set1_ps(1.9875691500e-4f);
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.3981999507e-3f));
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(8.3334519073e-3f));
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(4.1665795894e-2f));
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(1.6666665459e-1f));
    sum = _mm256_fmadd_ps(sum, rest, _mm256_set1_ps(5.0000001201e-1f));
    sum = _mm256_fmadd_ps(_mm256_mul_ps(rest, rest), sum, rest);
    sum = _mm256_add_ps(sum, _mm256_set1_ps(1.0f));
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(twos), _mm256_set1_epi32(127));
    return _mm256_mul_ps(sum, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

#endif
