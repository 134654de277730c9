/* What Python needs to load the kernels. */

#include "kernels.h"

/* Raised with every change of what is computed here, and in library.py: a library that was built
   before the change is not used. */
const int64_t kernels_edition = 4;

void *PyInit__kernels(void);

/* Lets Python's build tools treat the kernels as an extension. */
void *PyInit__kernels(void) { return 0; }

int64_t kernels_instructions(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("f16c"))
        return -1;
    if (!__builtin_cpu_supports("avx512f"))
        return WITH_AVX2;
    return __builtin_cpu_supports("avx512bf16") ? WITH_AVX512_BF16 : WITH_AVX512;
#else
    return -1;
#endif
}
