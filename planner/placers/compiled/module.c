/* Lets Python's build tools treat the loops as an extension; they are called through ctypes. */

void *PyInit__loops(void);

void *PyInit__loops(void) { return 0; }
