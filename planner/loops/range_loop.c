/* The loop of range annealing: ranges, perhaps near running ones, that carry a target over every layer.

   energy = sum over layers of lack(coverage) + penalty * max(0, layers to load - budget),

   where lack(x) is target - x + charge below the target, else 0: the charge makes one layer that
   lacks much better than many that lack little, which is what leads to none. Coverage is the sum over
   the nodes that hold a layer of T_i(held_i) or, with links, of what such a node receives and sends
   at most, if that is less. With links, nodes are taken to meet only where ranges meet, as if partial
   inference were not allowed: what gains by it here rarely passes the links. With `spares` the fastest
   node of every layer does not count: what is left when a node fails.

   Threshold accepting: a change for the worse is taken when it costs less than a random part of a
   threshold, which sinks from `hot` to `cold` over the moves. */

#include "loops.h"

#include <stdlib.h>

/* As planner.placers.loops.RangeTask has it; links: (n + 1) x (n + 1), the coordinator last, or 0 x 0. */
typedef struct {
    i64 num_layers, target;
    const i64 *speeds;
    i64 n, row;
    const i64 *limits;
    i64 limits_rows, limits_ends;
    const i64 *running; /* first and end of each node */
    i64 running_rows, running_ends, budget, penalty, charge, spares;
    const i64 *links;
    i64 links_rows, links_ends;
} RangeTask;

typedef struct {
    const RangeTask *task;
    i64 *firsts, *ends;
    i64 *coverage, *fastest; /* by layer; the fastest node's part, 0 where all count */
    i64 *carried;            /* by node: what it adds to the coverage of its layers */
    i64 *affected, *before;  /* nodes whose carried flow a change touches; what it was */
    i64 num_affected;
} State;

static i64 lack(const State *s, i64 carried)
{
    return carried < s->task->target ? s->task->target - carried + s->task->charge : 0;
}

static i64 fastest_at(const State *s, i64 layer)
{
    i64 fastest = 0;
    for (i64 node = 0; node < s->task->n; node++)
        if (s->firsts[node] <= layer && layer < s->ends[node])
            fastest = most(fastest, s->carried[node]);
    return fastest;
}

/* Add `amount` to the layers that the node holds; returns by how much the lack grows. */
static i64 cover(State *s, i64 node, i64 amount)
{
    i64 grown = 0;
    for (i64 layer = s->firsts[node]; layer < s->ends[node]; layer++) {
        grown -= lack(s, s->coverage[layer] - s->fastest[layer]);
        s->coverage[layer] += amount;
        if (s->task->spares > 0 && amount > s->fastest[layer]) s->fastest[layer] = amount;
        if (amount < 0 && s->task->spares > 0 && -amount == s->fastest[layer])
            s->fastest[layer] = fastest_at(s, layer);
        grown += lack(s, s->coverage[layer] - s->fastest[layer]);
    }
    return grown;
}

static i64 uncover(State *s, i64 node)
{
    i64 amount = s->carried[node];
    s->carried[node] = 0;
    return cover(s, node, -amount);
}

/* What a node computes, and receives and sends at most: it meets others where ranges meet. */
static i64 measure(const State *s, i64 node)
{
    i64 first = s->firsts[node], end = s->ends[node], n = s->task->n;
    i64 speed = s->task->speeds[node * s->task->row + end - first];
    const i64 *links = s->task->links;
    if (s->task->links_rows == 0 || first == end) return speed;
    i64 received = first == 0 ? links[n * (n + 1) + node] : 0;
    i64 sent = end == s->task->num_layers ? links[node * (n + 1) + n] : 0;
    for (i64 other = 0; other < n; other++) {
        if (s->firsts[other] == s->ends[other]) continue;
        if (s->ends[other] == first) received += links[other * (n + 1) + node];
        if (s->firsts[other] == end) sent += links[node * (n + 1) + other];
    }
    return least(speed, least(received, sent));
}

/* The nodes to measure again: those whose ranges change, and those that they meet or will meet. */
static void find_affected(State *s, i64 changed, const i64 *nodes, const i64 *new_firsts,
                          const i64 *new_ends)
{
    s->num_affected = 0;
    for (i64 k = 0; k < changed; k++) s->affected[s->num_affected++] = nodes[k];
    if (s->task->links_rows == 0) return;
    for (i64 other = 0; other < s->task->n; other++) {
        i64 first = s->firsts[other], end = s->ends[other], meets = 0;
        if (first == end || other == nodes[0] || other == nodes[changed - 1]) continue;
        for (i64 k = 0; k < changed; k++) {
            i64 i = nodes[k];
            meets |= first == s->ends[i] || end == s->firsts[i] || first == new_ends[k] ||
                     end == new_firsts[k];
        }
        if (meets) s->affected[s->num_affected++] = other;
    }
}

/* Returns the energy reached, or -1 without memory. Columns of `limits` are by the ends of the model
   that a node holds. */
i64 anneal_ranges(const RangeTask *task, i64 hot, i64 cold, i64 iterations, i64 seed, i64 *firsts,
                  i64 *ends)
{
    i64 n = task->n, num_layers = task->num_layers, target = task->target, row = task->row;
    i64 budget = task->budget, penalty = task->penalty;
    const i64 *speeds = task->speeds, *limits = task->limits, *running = task->running;
    i64 *memory = calloc((size_t)(2 * num_layers + 3 * n), sizeof(i64));
    if (memory == NULL) return -1;
    State s = {.task = task, .firsts = firsts, .ends = ends};
    s.coverage = memory;
    s.fastest = s.coverage + num_layers;
    s.carried = s.fastest + num_layers;
    s.affected = s.carried + n;
    s.before = s.affected + n;
    i64 moved = 0, random = seed, energy = num_layers * lack(&s, 0);
    for (i64 node = 0; node < n; node++) {
        moved += to_load(firsts[node], ends[node], running[2 * node], running[2 * node + 1]);
        s.carried[node] = measure(&s, node);
        energy += cover(&s, node, s.carried[node]);
    }
    energy += penalty * most(0, moved - budget);
    for (i64 iteration = 0; iteration < iterations && energy > 0; iteration++) {
        i64 nodes[2], new_firsts[2], new_ends[2], before_firsts[2], before_ends[2], changed = 1;
        random = next_random(random);
        i64 node = random % n, limit = limits[4 * node];
        if (limit == 0) continue;
        random = next_random(random);
        i64 kind = random % 10;
        random = next_random(random);
        i64 first = firsts[node], end = ends[node];
        i64 old_first = running[2 * node], old_end = running[2 * node + 1];
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
            first = running[2 * other];
            end = running[2 * other + 1];
        } else if (kind == 7) {
            i64 layer = random % num_layers;
            for (i64 tried = 0; tried < num_layers && s.coverage[layer] >= target; tried++)
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
            i64 at = (new_firsts[k] == 0) + 2 * (new_ends[k] == num_layers);
            if (new_firsts[k] < 0 || new_ends[k] > num_layers || held < 0 ||
                held > limits[4 * nodes[k] + at] || (held > 0 && speeds[nodes[k] * row + held] == 0))
                allowed = 0;
        }
        if (!allowed) continue;
        i64 change = 0, new_moved = moved;
        find_affected(&s, changed, nodes, new_firsts, new_ends);
        for (i64 k = 0; k < s.num_affected; k++) {
            s.before[k] = s.carried[s.affected[k]];
            change += uncover(&s, s.affected[k]);
        }
        for (i64 k = 0; k < changed; k++) {
            i64 i = nodes[k];
            new_moved += to_load(new_firsts[k], new_ends[k], running[2 * i], running[2 * i + 1]) -
                         to_load(firsts[i], ends[i], running[2 * i], running[2 * i + 1]);
            before_firsts[k] = firsts[i];
            before_ends[k] = ends[i];
        }
        for (i64 k = 0; k < changed; k++) {
            firsts[nodes[k]] = new_firsts[k];
            ends[nodes[k]] = new_ends[k];
        }
        for (i64 k = 0; k < s.num_affected; k++) {
            s.carried[s.affected[k]] = measure(&s, s.affected[k]);
            change += cover(&s, s.affected[k], s.carried[s.affected[k]]);
        }
        change += penalty * (most(0, new_moved - budget) - most(0, moved - budget));
        random = next_random(random);
        i64 room = hot - (hot - cold) * iteration / iterations;
        if (change <= room * (random % 1024) / 1024) {
            moved = new_moved;
            energy += change;
            continue;
        }
        for (i64 k = 0; k < s.num_affected; k++) uncover(&s, s.affected[k]);
        for (i64 k = 0; k < changed; k++) {
            firsts[nodes[k]] = before_firsts[k];
            ends[nodes[k]] = before_ends[k];
        }
        for (i64 k = 0; k < s.num_affected; k++) {
            s.carried[s.affected[k]] = s.before[k];
            cover(&s, s.affected[k], s.before[k]);
        }
    }
    free(memory);
    return energy;
}
