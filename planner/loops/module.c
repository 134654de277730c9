/* Lets Python's build tools treat the loops as an extension; they are called through ctypes. */

#include <stdint.h>

/* Raised with every change of a loop, here and in planner/native.py: a library that was built before
   the change is refused. */
const int64_t loops_edition = 25;

void *PyInit__loops(void);

void *PyInit__loops(void) { return 0; }
