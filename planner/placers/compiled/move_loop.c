/* The loop of range annealing; move_loop.py beside it is the same in Python, explains it, and gives
   the same answer. Change both together. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;

static i64 next_random(i64 state) { return state * 48271 % 2147483647; }

static i64 least(i64 a, i64 b) { return a < b ? a : b; }

static i64 most(i64 a, i64 b) { return a > b ? a : b; }

static i64 to_load(i64 first, i64 end, i64 old_first, i64 old_end)
{
    return end - first - most(0, least(end, old_end) - most(first, old_first));
}

static i64 shortfall(i64 target, i64 covered) { return covered < target ? target - covered : 0; }

/* Add `speed` to layers [first, end); returns by how much the shortfall grows. */
static i64 cover(i64 *coverage, i64 first, i64 end, i64 speed, i64 target)
{
    i64 grown = 0;
    for (i64 layer = first; layer < end; layer++) {
        grown -= shortfall(target, coverage[layer]);
        coverage[layer] += speed;
        grown += shortfall(target, coverage[layer]);
    }
    return grown;
}

/* Returns the energy reached, or -1 without memory. */
i64 anneal_moves(i64 n, i64 num_layers, i64 target, i64 row, const i64 *speeds, const i64 *limits,
                 const i64 *old_firsts, const i64 *old_ends, i64 budget, i64 penalty, i64 threshold,
                 i64 iterations, i64 seed, i64 *firsts, i64 *ends)
{
    i64 *coverage = malloc((size_t)num_layers * sizeof(i64));
    if (coverage == NULL) return -1;
    memset(coverage, 0, (size_t)num_layers * sizeof(i64));
    i64 moved = 0, random = seed, energy = num_layers * target;
    for (i64 node = 0; node < n; node++) {
        moved += to_load(firsts[node], ends[node], old_firsts[node], old_ends[node]);
        energy += cover(coverage, firsts[node], ends[node],
                        speeds[node * row + ends[node] - firsts[node]], target);
    }
    energy += penalty * most(0, moved - budget);
    for (i64 iteration = 0; iteration < iterations && energy > 0; iteration++) {
        i64 nodes[2], new_firsts[2], new_ends[2], changed = 1;
        random = next_random(random);
        i64 node = random % n, limit = limits[node];
        if (limit == 0) continue;
        random = next_random(random);
        i64 kind = random % 10;
        random = next_random(random);
        i64 first = firsts[node], end = ends[node];
        i64 old_first = old_firsts[node], old_end = old_ends[node];
        if (kind == 0) {
            first += random % 2 ? 1 : -1;
        } else if (kind == 1) {
            end += random % 2 ? 1 : -1;
        } else if (kind == 2) {
            i64 shift = random % 2 ? 1 + random / 2 % 3 : -1 - random / 2 % 3;
            first += shift;
            end += shift;
        } else if (kind == 3) {
            first = old_first;
            end = old_end;
        } else if (kind == 4) {
            first = end = old_first;
            if (old_end > old_first) {
                first += random % (old_end - old_first);
                random = next_random(random);
                end = first + 1 + random % (old_end - first);
            }
        } else if (kind == 5) {
            i64 other = random % n;
            first = firsts[other];
            end = ends[other];
        } else if (kind == 6) {
            i64 other = random % n;
            first = old_firsts[other];
            end = old_ends[other];
        } else if (kind == 7) {
            i64 layer = random % num_layers;
            for (i64 tried = 0; tried < num_layers && coverage[layer] >= target; tried++)
                layer = layer + 1 < num_layers ? layer + 1 : 0;
            random = next_random(random);
            i64 held = 1 + random % limit;
            random = next_random(random);
            first = layer - random % held;
            end = first + held;
        } else {
            i64 other = random % n;
            nodes[1] = other;
            new_firsts[1] = first;
            new_ends[1] = end;
            changed = 2;
            first = firsts[other];
            end = ends[other];
        }
        nodes[0] = node;
        new_firsts[0] = first;
        new_ends[0] = end;
        i64 allowed = first != firsts[node] || end != ends[node];
        for (i64 k = 0; k < changed; k++) {
            i64 held = new_ends[k] - new_firsts[k];
            if (new_firsts[k] < 0 || new_ends[k] > num_layers || held < 0 ||
                held > limits[nodes[k]] || (held > 0 && speeds[nodes[k] * row + held] == 0))
                allowed = 0;
        }
        if (!allowed) continue;
        i64 change = 0, new_moved = moved;
        for (i64 k = 0; k < changed; k++) {
            i64 i = nodes[k];
            new_moved += to_load(new_firsts[k], new_ends[k], old_firsts[i], old_ends[i]) -
                         to_load(firsts[i], ends[i], old_firsts[i], old_ends[i]);
            change += cover(coverage, firsts[i], ends[i], -speeds[i * row + ends[i] - firsts[i]],
                            target);
        }
        for (i64 k = 0; k < changed; k++)
            change += cover(coverage, new_firsts[k], new_ends[k],
                            speeds[nodes[k] * row + new_ends[k] - new_firsts[k]], target);
        change += penalty * (most(0, new_moved - budget) - most(0, moved - budget));
        random = next_random(random);
        i64 room = threshold - threshold * iteration / iterations;
        if (change <= room * (random % 1024) / 1024) {
            for (i64 k = 0; k < changed; k++) {
                firsts[nodes[k]] = new_firsts[k];
                ends[nodes[k]] = new_ends[k];
            }
            moved = new_moved;
            energy += change;
            continue;
        }
        for (i64 k = 0; k < changed; k++)
            cover(coverage, new_firsts[k], new_ends[k],
                  -speeds[nodes[k] * row + new_ends[k] - new_firsts[k]], target);
        for (i64 k = 0; k < changed; k++) {
            i64 i = nodes[k];
            cover(coverage, firsts[i], ends[i], speeds[i * row + ends[i] - firsts[i]], target);
        }
    }
    free(coverage);
    return energy;
}
