/* Lets Python's build tools treat the loops as an extension; they are called through ctypes. */

#include <stdint.h>

/* Raised with every change of a loop, here and in loops.py: a library that was built before the
   change is not used. */
const int64_t loops_edition = 9;

void *PyInit__loops(void);

void *PyInit__loops(void) { return 0; }
