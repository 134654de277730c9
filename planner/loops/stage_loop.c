/* Annealing on the sequence of stages: a chain of stages that carries a target flow.

   Every node is in one slot (a stage) or in none (-1). The slots form a ring in pipeline order that
   begins and ends at the coordinator, slot n of n nodes. A stage is as long as its nodes together
   carry the target: the largest j with sum T_i(j) >= target.

   Lack = missing layers + excess stages + weight * (sum of what crossings cannot carry) / target.
   The sum over all crossings, not the worst one: every crossing that gets better is rewarded. Lack 0
   is a chain that carries the target: every node's share of it is fixed by its stage alone, so what
   enters a stage over one crossing is what leaves it over the next.

   What is annealed rewards speed towards a stage's next layer as well (CREDIT, in layers): a stage
   of 80 % of what one more layer needs is nearer to it than one of 10 %. Once all layers are held
   they stay so (ALL_HELD), and the rest is about crossings. Measured on 100 generated nodes in 10
   regions: chains that 1e6 moves did not find without credit are found in most tries with 0.3 to 0.5
   of a layer, in few with a whole one. */

#include "loops.h"

#include <stdlib.h>
#include <string.h>

/* As planner.placers.loops.StageTask has it; `limits` has no rows where the model's ends cost nothing. */
typedef struct {
    i64 num_layers, target, max_stages;
    const i64 *speeds;
    i64 n, row;
    const i64 *links;
    i64 links_rows, links_columns;
    const i64 *neighbours;
    i64 neighbours_rows, num_neighbours;
    double weight;
    const i64 *limits;
    i64 limits_rows, limits_ends;
} StageTask;

enum { PARTS_OF_LAYER = 1024 };
static const double CREDIT = 0.4, ALL_HELD = -1000.0;

typedef struct {
    i64 layers, all_parts, deficit, num_free;
    i64 ends[2]; /* the slots whose lengths are those of the first and the last stage */
} Totals;

/* A refused move is taken back by a copy of what it may change: the first `kept_size` numbers of memory,
   from `next_slot` on, and the totals. Sums of speeds, which are more, follow the nodes that it moved. */
typedef struct {
    i64 n, target, row;
    const StageTask *task;
    const i64 *speeds, *links, *limits; /* limits: NULL where the model's ends cost nothing */
    i64 *next_slot, *prev_slot, *slot_of, *head, *next_node, *prev_node, *lengths, *deficits, *parts, *free_slots;
    i64 *kept, *sums, *left, *right, *left_room, *right_room, *carried, *parents, *queue;
    i64 kept_size, num_moved, moved[3 * 2], tails[12]; /* moved: node, slot before, slot after */
    Totals now, before;
} Chain;

/* Lower the rooms to equal shares that add up to the target, where they are more than it. */
static void share_out(i64 target, i64 *rooms, i64 count)
{
    i64 left = target, equal = count, share = 0, before = -1;
    while (equal > 0 && equal != before) {
        before = equal;
        share = left / equal;
        left = target;
        equal = 0;
        for (i64 k = 0; k < count; k++)
            if (rooms[k] <= share)
                left -= rooms[k];
            else
                equal++;
    }
    if (left <= 0 || equal == 0) return;
    share = left / equal;
    i64 rest = left - share * equal;
    for (i64 k = 0; k < count; k++)
        if (rooms[k] > share) {
            rooms[k] = share + (rest > 0 ? 1 : 0);
            if (rest > 0) rest--;
        }
}

/* The column of `limits` for the stage of a slot: + 1 for the first, + 2 for the last. */
static i64 ends_of(const Chain *c, i64 slot)
{
    if (c->limits == NULL) return 0;
    return (c->next_slot[c->n] == slot) + 2 * (c->prev_slot[c->n] == slot);
}

static i64 speed_at(const Chain *c, i64 node, i64 length, i64 at)
{
    if (at > 0 && length > c->limits[4 * node + at]) return 0;
    return c->speeds[node * c->row + length];
}

static i64 sum_of(const Chain *c, i64 slot, i64 length)
{
    i64 at = ends_of(c, slot), sum = 0;
    if (at == 0) return c->sums[slot * c->row + length];
    for (i64 node = c->head[slot]; node >= 0; node = c->next_node[node])
        sum += speed_at(c, node, length, at);
    return sum;
}

static i64 gather(const Chain *c, i64 slot, i64 *nodes, i64 *rooms)
{
    if (slot == c->n) {
        nodes[0] = c->n;
        rooms[0] = c->target;
        return 1;
    }
    i64 length = c->lengths[slot], count = 0, at = ends_of(c, slot);
    for (i64 node = c->head[slot]; node >= 0; node = c->next_node[node]) {
        i64 room = speed_at(c, node, length, at);
        if (room > 0) {
            nodes[count] = node;
            rooms[count++] = room;
        }
    }
    share_out(c->target, rooms, count);
    return count;
}

/* What more can go from vertex v to w: nodes on the left, then those on the right. */
static i64 residual(const Chain *c, i64 num_left, i64 num_right, i64 v, i64 w)
{
    if (v >= num_left) return c->carried[w * num_right + v - num_left];
    return c->links[c->left[v] * (c->n + 1) + c->right[w - num_left]]
           - c->carried[v * num_right + w - num_left];
}

static i64 augment(Chain *c, i64 num_left, i64 num_right)
{
    i64 *parents = c->parents, *queue = c->queue, first = 0, last = 0, end = -1, v;
    for (v = 0; v < num_left + num_right; v++) {
        parents[v] = v < num_left && c->left_room[v] > 0 ? v : -1;
        if (parents[v] == v) queue[last++] = v;
    }
    while (first < last && end < 0) {
        v = queue[first++];
        i64 is_left = v < num_left, past = is_left ? num_left + num_right : num_left;
        for (i64 w = is_left ? num_left : 0; w < past && end < 0; w++) {
            if (parents[w] >= 0 || residual(c, num_left, num_right, v, w) <= 0) continue;
            parents[w] = v;
            queue[last++] = w;
            if (is_left && c->right_room[w - num_left] > 0) end = w;
        }
    }
    if (end < 0) return 0;
    i64 push = c->right_room[end - num_left];
    for (v = end; parents[v] != v; v = parents[v])
        push = least(push, residual(c, num_left, num_right, parents[v], v));
    push = least(push, c->left_room[v]);
    c->left_room[v] -= push;
    c->right_room[end - num_left] -= push;
    for (v = end; parents[v] != v; v = parents[v])
        if (v >= num_left)
            c->carried[parents[v] * num_right + v - num_left] += push;
        else
            c->carried[v * num_right + parents[v] - num_left] -= push;
    return push;
}

static i64 crossing_deficit(Chain *c, i64 slot)
{
    const i64 width = c->n + 1;
    i64 num_left = gather(c, slot, c->left, c->left_room);
    i64 num_right = gather(c, c->next_slot[slot], c->right, c->right_room);
    i64 missing = c->target;
    for (i64 k = 0; k < num_left; k++) {
        const i64 *links = c->links + c->left[k] * width;
        for (i64 m = 0; m < num_right; m++) {
            i64 push = least(links[c->right[m]], least(c->left_room[k], c->right_room[m]));
            c->carried[k * num_right + m] = push;
            c->left_room[k] -= push;
            c->right_room[m] -= push;
            missing -= push;
        }
    }
    while (missing > 0) {
        i64 push = augment(c, num_left, num_right);
        if (push == 0) return missing;
        missing -= push;
    }
    return 0;
}

static i64 stage_length(const Chain *c, i64 slot)
{
    i64 length = c->row - 1;
    while (length > 0 && sum_of(c, slot, length) < c->target) length--;
    return length;
}

static i64 parts_of_next_layer(const Chain *c, i64 slot)
{
    i64 length = c->lengths[slot];
    i64 next = length + 1 < c->row ? sum_of(c, slot, length + 1) : 0;
    if (length == 0) return next * PARTS_OF_LAYER / c->target;
    i64 here = sum_of(c, slot, length);
    return (here - c->target) / ((here - next) / PARTS_OF_LAYER + 1);
}

static void add_node(Chain *c, i64 node, i64 slot)
{
    i64 first = c->head[slot];
    c->next_node[node] = first;
    c->prev_node[node] = -1;
    if (first >= 0) c->prev_node[first] = node;
    c->head[slot] = node;
    c->slot_of[node] = slot;
}

static void take_node(Chain *c, i64 node)
{
    i64 slot = c->slot_of[node], before = c->prev_node[node], after = c->next_node[node];
    if (before >= 0)
        c->next_node[before] = after;
    else
        c->head[slot] = after;
    if (after >= 0) c->prev_node[after] = before;
    c->slot_of[node] = -1;
}

/* Count the node's speeds in a slot, `sign` 1, or no more, -1. */
static void count_speeds(Chain *c, i64 node, i64 slot, i64 sign)
{
    i64 *sums = c->sums + slot * c->row;
    const i64 *speeds = c->speeds + node * c->row;
    for (i64 j = 0; j < c->row; j++) sums[j] += sign * speeds[j];
}

static void link_slots(Chain *c, i64 first, i64 last, i64 before)
{
    i64 after = c->next_slot[before];
    c->next_slot[before] = first;
    c->prev_slot[first] = before;
    c->next_slot[last] = after;
    c->prev_slot[after] = last;
}

static i64 unlink_slots(Chain *c, i64 first, i64 last)
{
    i64 before = c->prev_slot[first], after = c->next_slot[last];
    c->next_slot[before] = after;
    c->prev_slot[after] = before;
    return before;
}

static void set_length(Chain *c, i64 slot, i64 length)
{
    c->now.layers += length - c->lengths[slot];
    c->lengths[slot] = length;
    i64 parts = parts_of_next_layer(c, slot);
    c->now.all_parts += parts - c->parts[slot];
    c->parts[slot] = parts;
}

static void set_deficit(Chain *c, i64 slot, i64 deficit)
{
    c->now.deficit += deficit - c->deficits[slot];
    c->deficits[slot] = deficit;
}

static void keep(Chain *c)
{
    c->before = c->now;
    memcpy(c->kept, c->next_slot, (size_t)c->kept_size * sizeof(i64));
}

static void begin(Chain *c, const i64 *ranks)
{
    i64 n = c->n;
    c->next_slot[n] = c->prev_slot[n] = n;
    memset(c->sums, 0, (size_t)(n * c->row) * sizeof(i64));
    memset(c->lengths, 0, (size_t)(n + 1) * sizeof(i64));
    memset(c->deficits, 0, (size_t)(n + 1) * sizeof(i64));
    memset(c->parts, 0, (size_t)(n + 1) * sizeof(i64));
    for (i64 slot = 0; slot < n; slot++) c->head[slot] = -1;
    for (i64 node = 0; node < n; node++) {
        c->slot_of[node] = -1;
        if (ranks[node] < 0) continue;
        add_node(c, node, ranks[node]);
        count_speeds(c, node, ranks[node], 1);
    }
    c->now = (Totals){0};
    for (i64 slot = 0; slot < n; slot++)
        if (c->head[slot] >= 0)
            link_slots(c, slot, slot, c->prev_slot[n]);
        else
            c->free_slots[c->now.num_free++] = slot;
    c->now.ends[0] = c->next_slot[n];
    c->now.ends[1] = c->prev_slot[n];
    for (i64 slot = c->next_slot[n]; slot != n; slot = c->next_slot[slot])
        set_length(c, slot, stage_length(c, slot));
    i64 slot = n;
    do {
        set_deficit(c, slot, crossing_deficit(c, slot));
        slot = c->next_slot[slot];
    } while (slot != n);
    keep(c);
}

static void write_ranks(const Chain *c, i64 *ranks)
{
    i64 rank = 0;
    for (i64 node = 0; node < c->n; node++) ranks[node] = -1;
    for (i64 slot = c->next_slot[c->n]; slot != c->n; slot = c->next_slot[slot]) {
        for (i64 node = c->head[slot]; node >= 0; node = c->next_node[node]) ranks[node] = rank;
        rank++;
    }
}

static void move_node(Chain *c, i64 node, i64 slot)
{
    i64 old = c->slot_of[node], *moved = c->moved + 3 * c->num_moved++;
    if (old >= 0) {
        take_node(c, node);
        count_speeds(c, node, old, -1);
    }
    add_node(c, node, slot);
    count_speeds(c, node, slot, 1);
    moved[0] = node;
    moved[1] = old;
    moved[2] = slot;
}

static void take_back(Chain *c)
{
    for (; c->num_moved > 0; c->num_moved--) {
        const i64 *moved = c->moved + 3 * (c->num_moved - 1);
        count_speeds(c, moved[0], moved[2], -1);
        if (moved[1] >= 0) count_speeds(c, moved[0], moved[1], 1);
    }
    c->now = c->before;
    memcpy(c->next_slot, c->kept, (size_t)c->kept_size * sizeof(i64));
}

static i64 retire_if_empty(Chain *c, i64 slot)
{
    if (c->head[slot] >= 0) return slot;
    set_length(c, slot, 0);
    set_deficit(c, slot, 0);
    c->free_slots[c->now.num_free++] = slot;
    return unlink_slots(c, slot, slot);
}

static i64 relocate(Chain *c, i64 u, i64 b)
{
    i64 a = c->slot_of[u], count = 0, *tails = c->tails;
    move_node(c, u, b);
    if (a >= 0) {
        i64 tail = retire_if_empty(c, a);
        tails[count++] = tail;
        if (tail == a) {
            tails[count++] = c->prev_slot[a];
            set_length(c, a, stage_length(c, a));
        }
    }
    set_length(c, b, stage_length(c, b));
    tails[count++] = b;
    tails[count++] = c->prev_slot[b];
    return count;
}

static i64 swap(Chain *c, i64 u, i64 v)
{
    i64 a = c->slot_of[u], b = c->slot_of[v], *tails = c->tails;
    move_node(c, u, b);
    move_node(c, v, a);
    set_length(c, a, stage_length(c, a));
    set_length(c, b, stage_length(c, b));
    tails[0] = a;
    tails[1] = c->prev_slot[a];
    tails[2] = b;
    tails[3] = c->prev_slot[b];
    return 4;
}

static i64 open_stage(Chain *c, i64 u, i64 before)
{
    i64 b = c->free_slots[--c->now.num_free];
    link_slots(c, b, b, before);
    return relocate(c, u, b);
}

static i64 shift_stages(Chain *c, i64 first, i64 last, i64 before)
{
    c->tails[0] = unlink_slots(c, first, last);
    link_slots(c, first, last, before);
    c->tails[1] = last;
    c->tails[2] = before;
    return 3;
}

/* Lengths again where a slot became the first or the last one, or is it no more; their crossings
   join the `count` tails. */
static i64 settle_ends(Chain *c, i64 count)
{
    i64 *ends = c->now.ends;
    i64 slots[4] = {ends[0], ends[1], c->next_slot[c->n], c->prev_slot[c->n]};
    if (c->limits == NULL || (slots[0] == slots[2] && slots[1] == slots[3])) return count;
    ends[0] = slots[2];
    ends[1] = slots[3];
    for (i64 k = 0; k < 4; k++) {
        i64 slot = slots[k];
        if (slot == c->n || c->head[slot] < 0) continue;
        set_length(c, slot, stage_length(c, slot));
        c->tails[count++] = slot;
        c->tails[count++] = c->prev_slot[slot];
    }
    return count;
}

static double lack_of(const Chain *c)
{
    i64 missing = most(0, c->task->num_layers - c->now.layers);
    i64 excess = most(0, c->n - c->now.num_free - c->task->max_stages);
    return (double)(missing + excess) + c->task->weight * (double)c->now.deficit / (double)c->target;
}

static double energy_of(const Chain *c)
{
    double lack = lack_of(c);
    if (c->now.layers >= c->task->num_layers) return lack + ALL_HELD;
    return lack - CREDIT * (double)c->now.all_parts / (double)PARTS_OF_LAYER;
}

static i64 last_of_run(const Chain *c, i64 first, i64 steps, i64 avoid)
{
    i64 last = first;
    while (steps > 0 && c->next_slot[last] != c->n) {
        last = c->next_slot[last];
        if (last == avoid) return -1;
        steps--;
    }
    return last;
}

static double anneal(Chain *c, const Cooling *cooling, i64 *best_ranks)
{
    i64 n = c->n, num_neighbours = c->task->num_neighbours, random = cooling->first_random;
    double energy = energy_of(c), best = lack_of(c), temperature = cooling->hot;
    for (i64 move = 0; move < cooling->moves && best > 0.0; move++) {
        temperature *= cooling->cooling;
        random = next_random(random);
        i64 kind = random % 16, num_tails;
        random = next_random(random);
        i64 u = random % n, v;
        random = next_random(random);
        if (num_neighbours > 0 && kind % 2 == 0)
            v = c->task->neighbours[u * num_neighbours + random % num_neighbours];
        else
            v = random % n;
        i64 a = c->slot_of[u], b = c->slot_of[v];
        random = next_random(random);
        if (b < 0 || (a == b && (kind < 10 || kind > 12))) continue;
        c->num_moved = 0;
        if (kind < 6) {
            num_tails = relocate(c, u, b);
        } else if (kind < 10) {
            if (a < 0) continue;
            num_tails = swap(c, u, v);
        } else if (kind < 13) {
            if (c->now.num_free == 0) continue;
            num_tails = open_stage(c, u, random % 2 == 0 ? b : c->prev_slot[b]);
        } else {
            i64 last = a >= 0 ? last_of_run(c, a, random % 4, b) : -1;
            if (last < 0 || c->prev_slot[a] == b) continue;
            num_tails = shift_stages(c, a, last, b);
        }
        num_tails = settle_ends(c, num_tails);
        for (i64 index = 0; index < num_tails; index++)
            set_deficit(c, c->tails[index], crossing_deficit(c, c->tails[index]));
        double proposed = energy_of(c);
        random = next_random(random);
        if (proposed - energy <= temperature * cooling->minus_logarithms[random % cooling->num_logarithms]) {
            energy = proposed;
            keep(c);
            double lack = lack_of(c);
            if (lack < best) {
                best = lack;
                write_ranks(c, best_ranks);
            }
        } else {
            take_back(c);
        }
    }
    return best;
}

/* Returns the least lack found, or -1 without memory. */
double anneal_stages(const StageTask *task, const Cooling *cooling, i64 *ranks, i64 *best_ranks)
{
    i64 n = task->n, row = task->row, slots = n + 1, widest = slots / 2 + 1;
    i64 *memory = malloc((size_t)(26 * slots + n * row + widest * widest) * sizeof(i64));
    if (memory == NULL) return -1.0;
    Chain chain = {.n = n, .target = task->target, .row = row, .task = task, .speeds = task->speeds,
                   .links = task->links, .limits = task->limits_rows ? task->limits : NULL};
    i64 *next = memory;
    i64 **sequences[] = {&chain.next_slot, &chain.prev_slot, &chain.slot_of, &chain.head,
                         &chain.next_node, &chain.prev_node, &chain.lengths, &chain.deficits,
                         &chain.parts, &chain.free_slots, &chain.left, &chain.right, &chain.left_room,
                         &chain.right_room, &chain.parents, &chain.queue};
    for (size_t index = 0; index < sizeof sequences / sizeof *sequences; index++) {
        *sequences[index] = next;
        next += slots;
    }
    chain.kept = next;
    chain.kept_size = chain.left - chain.next_slot;
    chain.sums = next + chain.kept_size;
    chain.carried = chain.sums + n * row;
    begin(&chain, ranks);
    write_ranks(&chain, best_ranks);
    double best = anneal(&chain, cooling, best_ranks);
    write_ranks(&chain, ranks);
    free(memory);
    return best;
}
