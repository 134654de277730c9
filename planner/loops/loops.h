/* What the loops share: numbers, chance, and how long and boldly to anneal. */

#ifndef HELIXWEB_LOOPS_H
#define HELIXWEB_LOOPS_H

#include <stdint.h>

typedef int64_t i64;

/* As planner.chance.Schedule packs it. */
typedef struct {
    i64 moves;
    double hot, cooling;
    i64 first_random;
    const double *minus_logarithms;
    i64 num_logarithms;
} Cooling;

/* Park and Miller's generator. */
static inline i64 next_random(i64 state) { return state * 48271 % 2147483647; }

static inline i64 least(i64 a, i64 b) { return a < b ? a : b; }

static inline i64 most(i64 a, i64 b) { return a > b ? a : b; }

/* Layers of [first, end) that are not in [old_first, old_end). */
static inline i64 to_load(i64 first, i64 end, i64 old_first, i64 old_end)
{
    return end - first - most(0, least(end, old_end) - most(first, old_first));
}

#endif
