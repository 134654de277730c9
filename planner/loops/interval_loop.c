/* Interval annealing: ranges that cover every layer with a target flow.

   By the coverage theorem the max flow of ranges, where links do not bind and partial inference is
   allowed, is the least over layers of sum T_i(held_i) over the nodes that hold it. The energy is
   what all layers together lack to the target; the least covered layer alone would say too little.
   With `spares` the fastest node of every layer does not count: what is left when a node fails. */

#include "loops.h"

#include <stdlib.h>
#include <string.h>

/* As planner.placers.loops.IntervalTask has it; `rows` and `ends` are sizes of arrays. */
typedef struct {
    i64 num_layers, target;
    const i64 *speeds;
    i64 n, row;
    const i64 *limits;
    i64 rows, ends, spares;
} IntervalTask;

static i64 shortfall(i64 target, i64 covered) { return covered < target ? target - covered : 0; }

/* What serves every layer, and its fastest node's part, which does not count (0: all count). */
typedef struct {
    i64 n, row, target, spares;
    const i64 *speeds, *first, *held;
    i64 *coverage, *fastest;
} Cover;

static i64 fastest_at(const Cover *c, i64 layer)
{
    i64 fastest = 0;
    for (i64 node = 0; node < c->n; node++) {
        i64 speed = c->speeds[node * c->row + c->held[node]];
        if (c->first[node] <= layer && layer < c->first[node] + c->held[node] && speed > fastest)
            fastest = speed;
    }
    return fastest;
}

/* Add `speed` to layers [first, first + held); returns by how much the shortfall grows. A node whose
   speed is taken away must hold nothing by then. */
static i64 cover(Cover *c, i64 first, i64 held, i64 speed)
{
    i64 grown = 0;
    for (i64 layer = first; layer < first + held; layer++) {
        grown -= shortfall(c->target, c->coverage[layer] - c->fastest[layer]);
        c->coverage[layer] += speed;
        if (c->spares > 0 && speed > c->fastest[layer]) c->fastest[layer] = speed;
        if (c->spares > 0 && -speed == c->fastest[layer]) c->fastest[layer] = fastest_at(c, layer);
        grown += shortfall(c->target, c->coverage[layer] - c->fastest[layer]);
    }
    return grown;
}

/* What a node may hold of these layers: columns of `limits` are by the ends of the model. */
static i64 limit_of(const i64 *limits, i64 node, i64 first, i64 held, i64 num_layers)
{
    return limits[4 * node + (first == 0) + 2 * (first + held == num_layers)];
}

/* Returns the least sum of shortfalls found, or -1 without memory. */
i64 anneal_intervals(const IntervalTask *task, const Cooling *cooling, i64 *first, i64 *held,
                     i64 *best_first, i64 *best_held)
{
    i64 n = task->n, num_layers = task->num_layers, target = task->target, spares = task->spares;
    i64 row = task->row;
    const i64 *speeds = task->speeds, *limits = task->limits;
    size_t size = (spares > 0 ? 2 : 1) * (size_t)num_layers * sizeof(i64);
    i64 *now = calloc(2 * (size_t)num_layers, sizeof(i64)), *before = malloc(size);
    if (now == NULL || before == NULL) {
        free(now);
        free(before);
        return -1;
    }
    Cover c = {n, row, target, spares, speeds, first, held, now, now + num_layers};
    i64 missing = num_layers * target, random = cooling->first_random;
    for (i64 node = 0; node < n; node++) {
        best_first[node] = first[node];
        best_held[node] = held[node];
        missing += cover(&c, first[node], held[node], speeds[node * row + held[node]]);
    }
    i64 best = missing;
    double temperature = cooling->hot * (double)target;
    for (i64 move = 0; move < cooling->moves && best > 0; move++) {
        temperature *= cooling->cooling;
        random = next_random(random);
        i64 kind = random % 8;
        random = next_random(random);
        i64 u = random % n, v = -1;
        random = next_random(random);
        if (limits[4 * u] == 0) continue;
        i64 u_first = first[u], u_held = held[u], v_first = 0, v_held = 0;
        i64 old_u_first = u_first, old_u_held = u_held, old_v_first = 0, old_v_held = 0;
        if (kind == 0) {
            u_held = 1 + random % limits[4 * u];
            random = next_random(random);
            u_first = random % (num_layers - u_held + 1);
        } else if (kind == 1) {
            v = random % n;
            if (v == u || limits[4 * v] == 0 ||
                u_held > limit_of(limits, v, u_first, u_held, num_layers))
                continue;
            v_first = u_first;
            v_held = u_held;
            u_first = old_v_first = first[v];
            u_held = old_v_held = held[v];
        } else if (kind < 4) {
            u_first += random % 7 - 3;
        } else if (kind < 6) {
            u_held += random % 3 - 1; /* the end moves */
        } else {
            i64 step = random % 3 - 1; /* the first layer moves */
            u_first += step;
            u_held -= step;
        }
        if (u_held < 0 || u_first < 0 || u_first + u_held > num_layers) continue;
        if (u_held > limit_of(limits, u, u_first, u_held, num_layers)) continue;
        memcpy(before, now, size);
        held[u] = 0;
        i64 delta = cover(&c, old_u_first, old_u_held, -speeds[u * row + old_u_held]);
        if (v >= 0) {
            held[v] = 0;
            delta += cover(&c, old_v_first, old_v_held, -speeds[v * row + old_v_held]);
            delta += cover(&c, v_first, v_held, speeds[v * row + v_held]);
        }
        delta += cover(&c, u_first, u_held, speeds[u * row + u_held]);
        random = next_random(random);
        i64 accepted = (double)delta <= temperature * cooling->minus_logarithms[random % cooling->num_logarithms];
        first[u] = accepted ? u_first : old_u_first;
        held[u] = accepted ? u_held : old_u_held;
        if (v >= 0) {
            first[v] = accepted ? v_first : old_v_first;
            held[v] = accepted ? v_held : old_v_held;
        }
        if (!accepted) {
            memcpy(now, before, size);
            continue;
        }
        missing += delta;
        if (missing < best) {
            best = missing;
            memcpy(best_first, first, (size_t)n * sizeof(i64));
            memcpy(best_held, held, (size_t)n * sizeof(i64));
        }
    }
    free(now);
    free(before);
    return best;
}
