/* Lets Python's build tools treat these loops as an extension; they are called through ctypes. */

#include <stdint.h>

/* Raised with every change of a loop, here and in library.py: a library that was built before the
   change is not used. */
const int64_t estimate_edition = 13;

void *PyInit__estimate(void);

void *PyInit__estimate(void) { return 0; }
