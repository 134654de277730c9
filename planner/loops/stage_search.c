/* Annealing of stages on the estimate; planner/objectives/stage_search.py explains it. */

#include "sustained.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE = -1, OUTSIDE = -1 };
enum { THROUGHPUT = 0, PER_PRICE = 1, FEWEST_NODES = 2 };

/* As SearchTask writes it. */
typedef struct {
    i64 nodes, num_layers, max_stages, row, aim, survives, table_size;
    double demand;
    const Model *model;
    const Links *links;
    const i64 *end, *most, *table; /* of each node: its end of links, its layers by ends of the model */
    const double *step_s, *speeds, *rooms, *limits, *price;
    const double *decode_s, *decode_slope;
    const i64 *running; /* first and end of the layers that each node holds now */
} Task;

/* A layer to load costs a share `charge` of the score, one beyond `budget` `penalty` more. */
typedef struct {
    i64 budget;
    double charge, penalty;
} Loading;

/* `stage_of` every node, IDLE for none; `lengths` has room for num_layers stages. */
typedef struct {
    i64 count;
    i64 *stage_of, *lengths;
} Stages;

/* Room for one load, filled for every candidate; `worst` is the loss that is tried first. */
typedef struct {
    i64 worst;
    i64 *group, *table, *tails, *heads, *order, *starts, *taken;
    double *share, *layers, *step_s, *room, *limit, *edge_share, *bandwidth, *latency, *crowding, *work;
} Space;

static i64 draw(i64 *state, i64 choices)
{
    *state = next_random(*state);
    return *state % choices;
}

static i64 most_edges(i64 nodes) { return nodes * nodes / 4 + 2 * nodes + 2; }

/* The memory that the arrays of `space` are in, NULL if there is none; each number has 8 bytes. */
static char *spread_out(Space *space, i64 n, i64 shares)
{
    i64 i = n + 1, e = most_edges(n), sum = 0;
    struct {
        void *array; /* where the pointer to it is */
        i64 size;
    } parts[] = {
        {&space->group, i}, {&space->table, i}, {&space->order, i}, {&space->starts, i},
        {&space->share, i}, {&space->layers, i}, {&space->step_s, i}, {&space->room, i},
        {&space->limit, i}, {&space->tails, e}, {&space->heads, e}, {&space->edge_share, e},
        {&space->bandwidth, e}, {&space->latency, e}, {&space->crowding, e},
        {&space->taken, 2 * shares}, {&space->work, e + 6 * i + shares},
    };
    size_t count = sizeof parts / sizeof *parts;
    for (size_t part = 0; part < count; part++) sum += parts[part].size;
    char *memory = malloc((size_t)sum * 8), *place = memory;
    for (size_t part = 0; memory != NULL && part < count; part++) {
        memcpy(parts[part].array, &place, sizeof place);
        place += parts[part].size * 8;
    }
    return memory;
}

static void add_edge(Space *space, Load *load, i64 tail, i64 head)
{
    i64 edge = load->edges++;
    space->tails[edge] = tail;
    space->heads[edge] = head;
    space->edge_share[edge] = (tail == OUTSIDE ? 1 : space->share[tail])
                              * (head == OUTSIDE ? 1 : space->share[head]);
}

/* Tokens/s that score `enough`; 0 where fewer nodes may score it at any rate. */
static double enough_per_s(const Task *task, double enough, double price)
{
    if (task->aim == PER_PRICE) return enough * price;
    if (task->aim == FEWEST_NODES) return fmin(enough, 1) * task->demand;
    return enough;
}

/* How good the stages are; 0 for stages that are empty, too long, not linked or of no speed, or
   clearly not good `enough`. */
static double score_with_all(const Task *task, Space *space, const Stages *tried, double enough)
{
    const i64 *stage_of = tried->stage_of, *lengths = tried->lengths;
    i64 stages = tried->count;
    Load load = {0, 0, task->table_size, space->group, space->table, space->tails, space->heads,
                 space->share, space->layers, space->step_s, space->room, space->limit,
                 space->edge_share, space->bandwidth, space->latency, space->crowding,
                 task->decode_s, task->decode_slope, 0};
    double price = 0;
    for (i64 stage = 0; stage < stages; stage++) {
        double speed = 0;
        i64 ends = (stage == 0) + 2 * (stage == stages - 1);
        space->starts[stage] = load.nodes;
        for (i64 node = 0; node < task->nodes; node++) {
            if (stage_of[node] != stage) continue;
            i64 held = lengths[stage], at = load.nodes++;
            if (held > task->most[4 * node + ends]) return 0;
            space->order[at] = task->end[node];
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
    for (i64 head = 0; head < space->starts[1]; head++) add_edge(space, &load, OUTSIDE, head);
    for (i64 stage = 0; stage + 1 < stages; stage++)
        for (i64 tail = space->starts[stage]; tail < space->starts[stage + 1]; tail++)
            for (i64 head = space->starts[stage + 1]; head < space->starts[stage + 2]; head++)
                add_edge(space, &load, tail, head);
    for (i64 tail = space->starts[stages - 1]; tail < load.nodes; tail++)
        add_edge(space, &load, tail, OUTSIDE);
    if (!find_connections(task->model, task->links, space->order, &load, space->work, space->taken))
        return 0;
    double result[4];
    sustained(task->model, &load, enough_per_s(task, enough, price), space->work, result);
    if (task->aim == PER_PRICE) return result[0] / price;
    if (task->aim == FEWEST_NODES) {
        if (result[0] < task->demand) return result[0] / task->demand;
        return 1 + (double)(task->nodes - load.nodes + 1);
    }
    return result[0];
}

/* The score; where a loss is to be survived, the least that is left without any one node. Ends early
   below `enough`: the score is then at most what is returned. */
static double score_of(const Task *task, Space *space, Stages *tried, double enough)
{
    double score = score_with_all(task, space, tried, enough);
    i64 first = space->worst, losses = task->survives ? task->nodes : 0;
    for (i64 at = 0; at < losses && score > 0 && score >= enough; at++) {
        i64 node = (first + at) % task->nodes, stage = tried->stage_of[node];
        if (stage == IDLE) continue;
        tried->stage_of[node] = IDLE;
        double left = score_with_all(task, space, tried, enough);
        tried->stage_of[node] = stage;
        if (left >= score) continue;
        score = left;
        space->worst = node;
    }
    return score;
}

/* Layers that nodes hold in these stages and not now. */
static i64 loaded(const Task *task, i64 *ends, const Stages *tried)
{
    i64 total = 0;
    for (i64 stage = 0, end = 0; stage < tried->count; stage++)
        ends[stage] = end += tried->lengths[stage];
    for (i64 node = 0; node < task->nodes; node++) {
        i64 stage = tried->stage_of[node];
        if (stage == IDLE) continue;
        const i64 *now = task->running + 2 * node;
        total += to_load(ends[stage] - tried->lengths[stage], ends[stage], now[0], now[1]);
    }
    return total;
}

/* Layers that no node holds (or one only, if a loss is to be survived), or beyond nodes' limits. */
static i64 lacking(const Task *task, const Stages *tried)
{
    i64 total = 0;
    for (i64 stage = 0; stage < tried->count; stage++) {
        i64 ends = (stage == 0) + 2 * (stage == tried->count - 1);
        i64 held = tried->lengths[stage], holders = 0;
        for (i64 node = 0; node < task->nodes; node++) {
            if (tried->stage_of[node] != stage) continue;
            total += most(0, held - task->most[4 * node + ends]);
            holders++;
        }
        total += held * most(0, 1 + task->survives - holders);
    }
    return total;
}

/* The score less what is to be loaded; below 0 what serves nothing, by what it lacks. */
static double charged(const Task *task, const Loading *loading, Space *space, Stages *tried,
                      double enough)
{
    if (!(loading->penalty > 0)) return score_of(task, space, tried, enough);
    i64 layers = loaded(task, space->starts, tried);
    double cost = 1 + loading->charge * (double)layers
                  + loading->penalty * (double)most(0, layers - loading->budget);
    double score = score_of(task, space, tried, enough * cost);
    return score > 0 ? score / cost : -1 - (double)lacking(task, tried);
}

static void remove_stage(i64 nodes, Stages *stages, i64 gone)
{
    for (i64 node = 0; node < nodes; node++)
        stages->stage_of[node] -= stages->stage_of[node] > gone;
    stages->count -= 1;
    for (i64 stage = gone; stage < stages->count; stage++)
        stages->lengths[stage] = stages->lengths[stage + 1];
}

static void add_stage(i64 nodes, Stages *stages, i64 fresh, i64 layers)
{
    for (i64 node = 0; node < nodes; node++)
        stages->stage_of[node] += stages->stage_of[node] >= fresh;
    for (i64 stage = stages->count; stage > fresh; stage--)
        stages->lengths[stage] = stages->lengths[stage - 1];
    stages->lengths[fresh] = layers;
    stages->count += 1;
}

static void copy(const Task *task, Stages *to, const Stages *from)
{
    to->count = from->count;
    memcpy(to->stage_of, from->stage_of, (size_t)task->nodes * sizeof(i64));
    memcpy(to->lengths, from->lengths, (size_t)task->num_layers * sizeof(i64));
}

/* Changes the candidate; 0 where the move makes no sense. */
static int move(const Task *task, i64 *state, Stages *stages)
{
    i64 *stage_of = stages->stage_of, *lengths = stages->lengths;
    i64 n = task->nodes, kind = draw(state, 10), count = stages->count;
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
        remove_stage(n, stages, from);
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
        add_stage(n, stages, stage + 1, layers);
        for (i64 node = 0; node < n; node++)
            if (stage_of[node] == stage && draw(state, 2)) stage_of[node] = stage + 1;
        return 1;
    }
    if (kind == 8) {
        i64 node = draw(state, n), fresh = draw(state, count + 1), giver = draw(state, count);
        i64 layers = 1 + draw(state, 4);
        if (count >= task->max_stages || lengths[giver] <= layers) return 0;
        lengths[giver] -= layers;
        add_stage(n, stages, fresh, layers);
        stage_of[node] = fresh;
        return 1;
    }
    i64 from = draw(state, count), to = draw(state, count), layers = 1 + draw(state, 3);
    if (from == to || lengths[from] <= layers) return 0;
    lengths[from] -= layers;
    lengths[to] += layers;
    return 1;
}

/* Returns the best score, or NAN without memory. `last` starts as the first candidate and ends as the
   last one taken; `best` ends as the best. */
double anneal_estimate(const Task *task, const Cooling *cooling, const Loading *loading, Stages *last,
                       Stages *best)
{
    Space space;
    char *memory = spread_out(&space, task->nodes, task->links->shares);
    i64 *numbers = malloc((size_t)(task->nodes + task->num_layers + 1) * sizeof(i64));
    if (memory == NULL || numbers == NULL) {
        free(memory);
        free(numbers);
        return NAN;
    }
    Stages tried = {0, numbers, numbers + task->nodes};
    space.worst = 0;
    i64 random_state = cooling->first_random;
    double score = charged(task, loading, &space, last, 0);
    double best_score = score, temperature = cooling->hot;
    copy(task, best, last);
    for (i64 number = 0; number < cooling->moves; number++, temperature *= cooling->cooling) {
        copy(task, &tried, last);
        if (!move(task, &random_state, &tried)) continue;
        i64 drawn = draw(&random_state, cooling->num_logarithms);
        double patience = temperature * cooling->minus_logarithms[drawn];
        double enough = score > 0 ? score * (1 - patience) : score;
        double tried_score = charged(task, loading, &space, &tried, enough);
        if (!(tried_score > 0) && (score > 0 || !(loading->penalty > 0))) continue;
        if (tried_score < enough) continue;
        copy(task, last, &tried);
        score = tried_score;
        if (score > best_score) {
            best_score = score;
            copy(task, best, last);
        }
    }
    free(memory);
    free(numbers);
    return best_score;
}
