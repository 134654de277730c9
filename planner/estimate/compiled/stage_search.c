/* Annealing of stages on the estimate; stage_search.py beside this is the same in Python, explains
   it, and gives the same answer. Change both together. */

#include "sustained.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE = -1, OUTSIDE = -1 };
enum { THROUGHPUT = 0, PER_PRICE = 1, FEWEST_NODES = 2 };

typedef struct {
    i64 nodes, num_layers, max_stages, row, mode;
    const i64 *most, *table; /* most: layers of each node, by the ends of the model that it has */
    const double *step_s, *speeds, *rooms, *limits, *bandwidth, *latency, *price;
    i64 shares;
    const double *share_bandwidth;
    const i64 *is_card, *member, *leaving_start, *leaving, *reaching_start, *reaching;
    double demand;
} Task;

/* Room for one load, filled anew for every candidate. */
typedef struct {
    i64 *group, *table, *tails, *heads, *order, *starts, *taken;
    double *share, *layers, *step_s, *room, *limit, *edge_share, *bandwidth, *latency, *crowding, *carried, *work;
} Space;

/* Park and Miller's generator. */
static i64 draw(i64 *state, i64 choices)
{
    *state = *state * 48271 % 2147483647;
    return *state % choices;
}

static i64 most_edges(i64 nodes) { return nodes * nodes / 4 + 2 * nodes + 2; }

static void *take(char **place, size_t bytes)
{
    void *taken = *place;
    *place += (bytes + 15) / 16 * 16;
    return taken;
}

static char *spread_out(Space *space, i64 n, i64 shares)
{
    size_t i = (size_t)(n + 1) * 8, e = (size_t)most_edges(n) * 8;
    char *memory = malloc(9 * (i + 16) + 7 * (e + 16) + 6 * i + 3 * (size_t)shares * 8 + 128);
    if (memory == NULL) return NULL;
    char *place = memory;
    space->group = take(&place, i);
    space->table = take(&place, i);
    space->order = take(&place, i);
    space->starts = take(&place, i);
    space->share = take(&place, i);
    space->layers = take(&place, i);
    space->step_s = take(&place, i);
    space->room = take(&place, i);
    space->limit = take(&place, i);
    space->tails = take(&place, e);
    space->heads = take(&place, e);
    space->edge_share = take(&place, e);
    space->bandwidth = take(&place, e);
    space->latency = take(&place, e);
    space->crowding = take(&place, e);
    space->carried = take(&place, (size_t)shares * 8);
    space->taken = take(&place, 2 * (size_t)shares * 8);
    space->work = take(&place, e + 6 * i);
    return memory;
}

static int add_edge(const Task *task, Space *space, Load *load, i64 tail, i64 head)
{
    i64 width = task->nodes + 1;
    i64 from = tail == OUTSIDE ? task->nodes : space->order[tail];
    i64 to = head == OUTSIDE ? task->nodes : space->order[head];
    double bandwidth = task->bandwidth[from * width + to];
    if (!(bandwidth > 0)) return 0;
    i64 edge = load->edges++;
    space->tails[edge] = tail;
    space->heads[edge] = head;
    space->edge_share[edge] = (tail == OUTSIDE ? 1 : space->share[tail])
                              * (head == OUTSIDE ? 1 : space->share[head]);
    space->bandwidth[edge] = bandwidth;
    space->latency[edge] = task->latency[from * width + to];
    space->crowding[edge] = 0;
    return 1;
}

/* `taken` gets the shared bandwidths that the link takes; returns how many. */
static i64 taken_by(const Task *task, i64 from, i64 to, i64 *taken)
{
    i64 count = 0, ends = task->nodes + 1;
    for (i64 at = task->leaving_start[from]; at < task->leaving_start[from + 1]; at++) {
        i64 share = task->leaving[at];
        if (task->is_card[share] || !task->member[share * ends + to]) taken[count++] = share;
    }
    for (i64 at = task->reaching_start[to]; at < task->reaching_start[to + 1]; at++) {
        i64 share = task->reaching[at];
        if (task->is_card[share] || !task->member[share * ends + from]) taken[count++] = share;
    }
    return count;
}

/* Limits connections to the shared bandwidths they take, and finds what others take of these. */
static void crowd(const Model *model, const Task *task, Space *space, const Load *load, i64 *taken)
{
    double per_output = model->activation_bytes * (1 + model->prompt_tokens / model->output_tokens);
    for (i64 share = 0; share < task->shares; share++) space->carried[share] = 0;
    for (int turn = 0; turn < 2; turn++)
        for (i64 edge = 0; edge < load->edges; edge++) {
            i64 tail = space->tails[edge], head = space->heads[edge];
            i64 from = tail == OUTSIDE ? task->nodes : space->order[tail];
            i64 to = head == OUTSIDE ? task->nodes : space->order[head];
            int is_outer = tail == OUTSIDE || head == OUTSIDE;
            double bytes = is_outer ? 0 : space->edge_share[edge] * per_output;
            i64 count = taken_by(task, from, to, taken);
            for (i64 at = 0; at < count; at++) {
                i64 share = taken[at];
                if (turn == 0) {
                    space->carried[share] += bytes;
                    continue;
                }
                double bandwidth = task->share_bandwidth[share];
                space->bandwidth[edge] = fmin(space->bandwidth[edge], bandwidth);
                space->crowding[edge] = fmax(space->crowding[edge],
                                             (space->carried[share] - bytes) / bandwidth);
            }
        }
}

/* Seconds from the last stage to the first; a single stage is both. */
static double return_s(const Model *model, const Task *task, const Space *space, i64 stages,
                       i64 nodes)
{
    i64 width = task->nodes + 1, outside = task->nodes;
    double total = 0;
    if (model->straight_back > 0 && stages == 1) return 0;
    for (i64 last = space->starts[stages - 1]; last < nodes; last++)
        for (i64 first = 0; first < space->starts[1]; first++) {
            i64 tail = space->order[last], head = space->order[first];
            double latency = task->latency[tail * width + outside]
                             + task->latency[outside * width + head];
            if (model->straight_back > 0 && task->bandwidth[tail * width + head] > 0)
                latency = task->latency[tail * width + head];
            total += space->share[last] * space->share[first] * latency;
        }
    return total;
}

/* How good the stages are; 0 for stages that are empty, too long, not linked or of no speed. */
static double score_of(const Model *model, const Task *task, Space *space, const double *decode_s,
                       const double *decode_slope, i64 table_size, const i64 *stage_of,
                       const i64 *lengths, i64 stages)
{
    Load load = {0, 0, table_size, space->group, space->table, space->tails, space->heads,
                 space->share, space->layers, space->step_s, space->room, space->limit,
                 space->edge_share, space->bandwidth, space->latency, space->crowding, decode_s,
                 decode_slope, 0};
    double price = 0;
    for (i64 stage = 0; stage < stages; stage++) {
        double speed = 0;
        i64 ends = (stage == 0) + 2 * (stage == stages - 1);
        space->starts[stage] = load.nodes;
        for (i64 node = 0; node < task->nodes; node++) {
            if (stage_of[node] != stage) continue;
            i64 held = lengths[stage], at = load.nodes++;
            if (held > task->most[4 * node + ends]) return 0;
            space->order[at] = node;
            space->group[at] = stage;
            space->table[at] = task->table[node];
            space->layers[at] = (double)held;
            space->step_s[at] = task->step_s[node];
            space->room[at] = task->rooms[(ends * task->nodes + node) * task->row + held];
            space->limit[at] = task->limits[node * task->row + held];
            space->share[at] = task->speeds[node * task->row + held];
            speed += space->share[at];
            price += task->price[node];
        }
        if (!(speed > 0)) return 0;
        for (i64 at = space->starts[stage]; at < load.nodes; at++) space->share[at] /= speed;
    }
    space->starts[stages] = load.nodes;
    for (i64 head = 0; head < space->starts[1]; head++)
        if (!add_edge(task, space, &load, OUTSIDE, head)) return 0;
    for (i64 stage = 0; stage + 1 < stages; stage++)
        for (i64 tail = space->starts[stage]; tail < space->starts[stage + 1]; tail++)
            for (i64 head = space->starts[stage + 1]; head < space->starts[stage + 2]; head++)
                if (!add_edge(task, space, &load, tail, head)) return 0;
    for (i64 tail = space->starts[stages - 1]; tail < load.nodes; tail++)
        if (!add_edge(task, space, &load, tail, OUTSIDE)) return 0;
    load.return_s = return_s(model, task, space, stages, load.nodes);
    if (task->shares > 0) crowd(model, task, space, &load, space->taken);
    double result[4];
    sustained(model, &load, space->work, result);
    if (task->mode == PER_PRICE) return result[0] / price;
    if (task->mode == FEWEST_NODES) {
        if (result[0] < task->demand) return result[0] / task->demand;
        return 1 + (double)(task->nodes - load.nodes + 1);
    }
    return result[0];
}

static void remove_stage(i64 nodes, i64 *stage_of, i64 *lengths, i64 *stages, i64 gone)
{
    for (i64 node = 0; node < nodes; node++) stage_of[node] -= stage_of[node] > gone;
    for (i64 stage = gone; stage + 1 < *stages; stage++) lengths[stage] = lengths[stage + 1];
    *stages -= 1;
}

static void add_stage(i64 nodes, i64 *stage_of, i64 *lengths, i64 *stages, i64 fresh, i64 layers)
{
    for (i64 node = 0; node < nodes; node++) stage_of[node] += stage_of[node] >= fresh;
    for (i64 stage = *stages; stage > fresh; stage--) lengths[stage] = lengths[stage - 1];
    lengths[fresh] = layers;
    *stages += 1;
}

/* Changes the candidate; 0 where the move makes no sense. */
static int move(const Task *task, i64 *state, i64 *stage_of, i64 *lengths, i64 *stages)
{
    i64 n = task->nodes, kind = draw(state, 10), count = *stages;
    if (kind < 2) {
        if (count < 2) return 0;
        i64 left = draw(state, count - 1), layers = 1 + draw(state, 2);
        i64 backwards = draw(state, 2);
        i64 from = backwards ? left + 1 : left, to = backwards ? left : left + 1;
        if (lengths[from] > layers) {
            lengths[from] -= layers;
            lengths[to] += layers;
            return 1;
        }
        lengths[to] += lengths[from];
        for (i64 node = 0; node < n; node++)
            if (stage_of[node] == from) stage_of[node] = to;
        remove_stage(n, stage_of, lengths, stages, from);
        return 1;
    }
    if (kind < 4) {
        i64 node = draw(state, n), stage = draw(state, count + 1);
        if (stage == count) stage = IDLE;
        if (stage_of[node] == stage) return 0;
        stage_of[node] = stage;
        return 1;
    }
    if (kind < 6) {
        i64 node = draw(state, n), other = draw(state, n), stage = stage_of[node];
        if (stage == stage_of[other]) return 0;
        stage_of[node] = stage_of[other];
        stage_of[other] = stage;
        return 1;
    }
    if (kind == 6) {
        i64 stage = draw(state, count), other = draw(state, count), layers = lengths[stage];
        if (stage == other) return 0;
        lengths[stage] = lengths[other];
        lengths[other] = layers;
        for (i64 node = 0; node < n; node++) {
            if (stage_of[node] == stage) stage_of[node] = other;
            else if (stage_of[node] == other) stage_of[node] = stage;
        }
        return 1;
    }
    if (kind == 7) {
        i64 stage = draw(state, count);
        if (lengths[stage] < 2 || count >= task->max_stages) return 0;
        i64 layers = 1 + draw(state, lengths[stage] - 1);
        lengths[stage] -= layers;
        add_stage(n, stage_of, lengths, stages, stage + 1, layers);
        for (i64 node = 0; node < n; node++)
            if (stage_of[node] == stage && draw(state, 2)) stage_of[node] = stage + 1;
        return 1;
    }
    if (kind == 8) {
        i64 node = draw(state, n), fresh = draw(state, count + 1), giver = draw(state, count);
        i64 layers = 1 + draw(state, 4);
        if (count >= task->max_stages || lengths[giver] <= layers) return 0;
        lengths[giver] -= layers;
        add_stage(n, stage_of, lengths, stages, fresh, layers);
        stage_of[node] = fresh;
        return 1;
    }
    i64 from = draw(state, count), to = draw(state, count), layers = 1 + draw(state, 3);
    if (from == to || lengths[from] <= layers) return 0;
    lengths[from] -= layers;
    lengths[to] += layers;
    return 1;
}

/* Returns the best score, or -1 without memory. `stage_of` and `lengths` (of num_layers entries)
   start as the first candidate and end as the last; `best_*` end as the best. */
double anneal_estimate(const double *model_numbers, i64 nodes, i64 num_layers, i64 max_stages,
                       i64 row, i64 table_size, i64 mode, double demand, const i64 *most,
                       const i64 *table, const double *step_s, const double *speeds,
                       const double *rooms, const double *limits, const double *bandwidth,
                       const double *latency, const double *price, const double *share_bandwidth,
                       const i64 *is_card, const i64 *member, const i64 *leaving_start,
                       const i64 *leaving, const i64 *reaching_start, const i64 *reaching,
                       const double *decode_s, const double *decode_slope,
                       const double *minus_logarithms, i64 shares, i64 num_logarithms,
                       i64 moves, double hot, double cooling, i64 first_random, i64 *stage_of,
                       i64 *lengths, i64 *stages, i64 *best_stage_of, i64 *best_lengths,
                       i64 *best_stages)
{
    const Model *model = (const Model *)model_numbers;
    Task task = {nodes, num_layers, max_stages, row, mode, most, table, step_s, speeds, rooms,
                 limits, bandwidth, latency, price, shares, share_bandwidth, is_card, member,
                 leaving_start, leaving, reaching_start, reaching, demand};
    Space space;
    char *memory = spread_out(&space, nodes, shares);
    i64 *tried_stage_of = malloc((size_t)(nodes + num_layers + 1) * sizeof(i64));
    if (memory == NULL || tried_stage_of == NULL) {
        free(memory);
        free(tried_stage_of);
        return -1;
    }
    i64 *tried_lengths = tried_stage_of + nodes;
    i64 random_state = first_random;
    double score = score_of(model, &task, &space, decode_s, decode_slope, table_size, stage_of,
                            lengths, *stages);
    double best = score, temperature = hot;
    memcpy(best_stage_of, stage_of, (size_t)nodes * sizeof(i64));
    memcpy(best_lengths, lengths, (size_t)num_layers * sizeof(i64));
    *best_stages = *stages;
    for (i64 number = 0; number < moves; number++, temperature *= cooling) {
        i64 tried_stages = *stages;
        memcpy(tried_stage_of, stage_of, (size_t)nodes * sizeof(i64));
        memcpy(tried_lengths, lengths, (size_t)num_layers * sizeof(i64));
        if (!move(&task, &random_state, tried_stage_of, tried_lengths, &tried_stages)) continue;
        double tried = score_of(model, &task, &space, decode_s, decode_slope, table_size,
                                tried_stage_of, tried_lengths, tried_stages);
        if (!(tried > 0)) continue;
        if (tried < score) {
            double patience = temperature * minus_logarithms[draw(&random_state, num_logarithms)];
            if (score - tried > patience * score) continue;
        }
        memcpy(stage_of, tried_stage_of, (size_t)nodes * sizeof(i64));
        memcpy(lengths, tried_lengths, (size_t)num_layers * sizeof(i64));
        *stages = tried_stages;
        score = tried;
        if (score > best) {
            best = score;
            memcpy(best_stage_of, stage_of, (size_t)nodes * sizeof(i64));
            memcpy(best_lengths, lengths, (size_t)num_layers * sizeof(i64));
            *best_stages = *stages;
        }
    }
    free(memory);
    free(tried_stage_of);
    return best;
}
