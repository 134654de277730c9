/* The loop of range annealing; move_loop.py beside it is the same in Python, explains it, and gives
   the same answer. Change both together. */

#include <stdint.h>
#include <stdlib.h>

typedef int64_t i64;

typedef struct {
    i64 n, num_layers, target, row, whole, charge;
    const i64 *speeds, *links; /* links: (n + 1) x (n + 1), the coordinator last; or NULL */
    i64 *firsts, *ends;
    i64 *coverage;       /* by layer */
    i64 *lacks, *marks;  /* by border: what it lacks; when it was last measured */
    i64 *saved, *changed_borders, num_changed, mark;
} State;

static i64 next_random(i64 state) { return state * 48271 % 2147483647; }

static i64 least(i64 a, i64 b) { return a < b ? a : b; }

static i64 most(i64 a, i64 b) { return a > b ? a : b; }

static i64 to_load(i64 first, i64 end, i64 old_first, i64 old_end)
{
    return end - first - most(0, least(end, old_end) - most(first, old_first));
}

static i64 lack(const State *s, i64 carried)
{
    return carried < s->target ? s->target - carried + s->charge : 0;
}

/* Add sign * the node's speed to the layers it holds; returns by how much the lack grows. */
static i64 cover(State *s, i64 node, i64 sign)
{
    i64 grown = 0, speed = sign * s->speeds[node * s->row + s->ends[node] - s->firsts[node]];
    for (i64 layer = s->firsts[node]; layer < s->ends[node]; layer++) {
        grown -= lack(s, s->coverage[layer]);
        s->coverage[layer] += speed;
        grown += lack(s, s->coverage[layer]);
    }
    return grown;
}

static i64 speed_of(const State *s, i64 node)
{
    return s->speeds[node * s->row + s->ends[node] - s->firsts[node]];
}

/* What can pass between layer border - 1 and layer border, at most. */
static i64 crossing(const State *s, i64 border)
{
    i64 inside = 0, sent = 0, received = 0, n = s->n;
    for (i64 a = 0; a < n; a++) {
        if (s->firsts[a] == s->ends[a]) continue;
        if (s->firsts[a] < border && border < s->ends[a]) inside += speed_of(s, a);
        if (s->ends[a] == border) {
            i64 out = border == s->num_layers ? s->links[a * (n + 1) + n] : 0;
            for (i64 b = 0; b < n; b++)
                if (s->firsts[b] < s->ends[b] &&
                    (s->firsts[b] == border ||
                     (!s->whole && s->firsts[b] < border && border < s->ends[b])))
                    out += s->links[a * (n + 1) + b];
            sent += least(speed_of(s, a), out);
        }
        if (s->firsts[a] == border) {
            i64 in = border == 0 ? s->links[n * (n + 1) + a] : 0;
            for (i64 b = 0; b < n; b++)
                if (s->firsts[b] < s->ends[b] && s->ends[b] == border)
                    in += s->links[b * (n + 1) + a];
            received += least(speed_of(s, a), in);
        }
    }
    if (border == 0) return received;
    if (border == s->num_layers) return sent;
    return inside + least(sent, received);
}

/* Measure the borders [first, end] again that this mark has not seen; returns how the lack grows. */
static i64 measure_again(State *s, i64 first, i64 end)
{
    i64 grown = 0;
    for (i64 border = first; border <= end; border++) {
        if (s->marks[border] == s->mark) continue;
        s->marks[border] = s->mark;
        s->saved[s->num_changed] = s->lacks[border];
        s->changed_borders[s->num_changed++] = border;
        i64 now = lack(s, crossing(s, border));
        grown += now - s->lacks[border];
        s->lacks[border] = now;
    }
    return grown;
}

/* Returns the energy reached, or -1 without memory. */
i64 anneal_moves(i64 n, i64 num_layers, i64 target, i64 row, const i64 *speeds, const i64 *limits,
                 const i64 *links, i64 whole, const i64 *old_firsts, const i64 *old_ends,
                 i64 budget, i64 penalty, i64 charge, i64 threshold, i64 iterations, i64 seed,
                 i64 *firsts, i64 *ends)
{
    i64 *memory = calloc((size_t)(5 * num_layers + 4), sizeof(i64));
    if (memory == NULL) return -1;
    State s = {.n = n, .num_layers = num_layers, .target = target, .row = row, .whole = whole,
               .charge = charge, .speeds = speeds, .links = links, .firsts = firsts, .ends = ends};
    s.coverage = memory;
    s.lacks = s.coverage + num_layers;
    s.marks = s.lacks + num_layers + 1;
    s.saved = s.marks + num_layers + 1;
    s.changed_borders = s.saved + num_layers + 1;
    i64 moved = 0, random = seed, energy = num_layers * lack(&s, 0);
    for (i64 node = 0; node < n; node++) {
        moved += to_load(firsts[node], ends[node], old_firsts[node], old_ends[node]);
        energy += cover(&s, node, 1);
    }
    if (links != NULL) {
        s.mark = 1;
        energy += measure_again(&s, 0, num_layers);
    }
    energy += penalty * most(0, moved - budget);
    for (i64 iteration = 0; iteration < iterations && energy > 0; iteration++) {
        i64 nodes[2], new_firsts[2], new_ends[2], before_firsts[2], before_ends[2], changed = 1;
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
            change += cover(&s, i, -1);
            before_firsts[k] = firsts[i];
            before_ends[k] = ends[i];
        }
        for (i64 k = 0; k < changed; k++) {
            firsts[nodes[k]] = new_firsts[k];
            ends[nodes[k]] = new_ends[k];
            change += cover(&s, nodes[k], 1);
        }
        change += penalty * (most(0, new_moved - budget) - most(0, moved - budget));
        random = next_random(random);
        i64 room = (threshold - threshold * iteration / iterations) * (random % 1024) / 1024;
        s.num_changed = 0;
        if (links != NULL) {
            s.mark++;
            for (i64 k = 0; k < changed; k++) {
                change += measure_again(&s, before_firsts[k], before_ends[k]);
                change += measure_again(&s, new_firsts[k], new_ends[k]);
            }
        }
        if (change <= room) {
            moved = new_moved;
            energy += change;
            continue;
        }
        for (i64 k = 0; k < changed; k++) cover(&s, nodes[k], -1);
        for (i64 k = 0; k < changed; k++) {
            firsts[nodes[k]] = before_firsts[k];
            ends[nodes[k]] = before_ends[k];
            cover(&s, nodes[k], 1);
        }
        for (i64 k = 0; k < s.num_changed; k++) s.lacks[s.changed_borders[k]] = s.saved[k];
    }
    free(memory);
    return energy;
}
