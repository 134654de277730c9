/* Sharing work among threads. */

#ifndef HELIXWEB_THREADS_H
#define HELIXWEB_THREADS_H

#include <stdint.h>

/* Items [first, end) of `job`. */
typedef void Run(const void *job, int64_t first, int64_t end);

/* All items by `threads` threads, the caller among them; each takes a multiple of `together`. */
void run_shared(Run *run, const void *job, int64_t items, int64_t together, int64_t threads);

#endif
