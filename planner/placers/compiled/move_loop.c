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

/* Returns the energy reached, or -1 without memory. */
i64 anneal_moves(i64 n, i64 num_layers, i64 target, i64 row, const i64 *speeds, const i64 *limits,
                 const i64 *old_firsts, const i64 *old_ends, i64 budget, i64 penalty, i64 threshold,
                 i64 iterations, i64 seed, i64 *firsts, i64 *ends)
{
    i64 *coverage = malloc((size_t)num_layers * sizeof(i64));
    if (coverage == NULL) return -1;
    memset(coverage, 0, (size_t)num_layers * sizeof(i64));
    i64 moved = 0, random = seed;
    for (i64 node = 0; node < n; node++) {
        moved += to_load(firsts[node], ends[node], old_firsts[node], old_ends[node]);
        for (i64 layer = firsts[node]; layer < ends[node]; layer++)
            coverage[layer] += speeds[node * row + ends[node] - firsts[node]];
    }
    i64 energy = penalty * most(0, moved - budget);
    for (i64 layer = 0; layer < num_layers; layer++) energy += most(0, target - coverage[layer]);
    for (i64 iteration = 0; iteration < iterations && energy > 0; iteration++) {
        random = next_random(random);
        i64 node = random % n, limit = limits[node];
        if (limit == 0) continue;
        random = next_random(random);
        i64 kind = random % 8;
        random = next_random(random);
        i64 first = firsts[node], end = ends[node], new_first = first, new_end = end;
        i64 old_first = old_firsts[node], old_end = old_ends[node];
        if (kind == 0) {
            new_first += random % 2 ? 1 : -1;
        } else if (kind == 1) {
            new_end += random % 2 ? 1 : -1;
        } else if (kind == 2) {
            i64 shift = random % 2 ? 1 + random / 2 % 3 : -1 - random / 2 % 3;
            new_first += shift;
            new_end += shift;
        } else if (kind == 3) {
            new_first = old_first;
            new_end = old_end;
        } else if (kind == 4) {
            new_first = new_end = old_first;
            if (old_end > old_first) {
                new_first += random % (old_end - old_first);
                random = next_random(random);
                new_end = new_first + 1 + random % (old_end - new_first);
            }
        } else {
            i64 layer = random % num_layers;
            for (i64 tried = 0; tried < num_layers && coverage[layer] >= target; tried++)
                layer = layer + 1 < num_layers ? layer + 1 : 0;
            random = next_random(random);
            i64 held = 1 + random % limit;
            random = next_random(random);
            new_first = layer - random % held;
            new_end = new_first + held;
        }
        if (new_first < 0 || new_end > num_layers || new_end < new_first ||
            new_end - new_first > limit || (new_first == first && new_end == end))
            continue;
        i64 speed = speeds[node * row + end - first];
        i64 new_speed = speeds[node * row + new_end - new_first];
        if (new_end > new_first && new_speed == 0) continue;
        i64 new_moved = moved - to_load(first, end, old_first, old_end) +
                        to_load(new_first, new_end, old_first, old_end);
        i64 change = penalty * (most(0, new_moved - budget) - most(0, moved - budget));
        for (i64 layer = first; layer < end; layer++) {
            i64 after = coverage[layer] - speed;
            if (new_first <= layer && layer < new_end) after += new_speed;
            change += most(0, target - after) - most(0, target - coverage[layer]);
        }
        for (i64 layer = new_first; layer < new_end; layer++)
            if (layer < first || layer >= end)
                change += most(0, target - coverage[layer] - new_speed) -
                          most(0, target - coverage[layer]);
        if (change > 0) {
            random = next_random(random);
            i64 room = threshold - threshold * iteration / iterations;
            if (change > room * (random % 1024) / 1024) continue;
        }
        for (i64 layer = first; layer < end; layer++) coverage[layer] -= speed;
        for (i64 layer = new_first; layer < new_end; layer++) coverage[layer] += new_speed;
        firsts[node] = new_first;
        ends[node] = new_end;
        moved = new_moved;
        energy += change;
    }
    free(coverage);
    return energy;
}
