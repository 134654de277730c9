/* The estimate's fixed point; planner/estimate/fixed_point.py explains it. */

#include "sustained.h"

#include <math.h>

enum { CYCLE_STEPS = 40, SEARCH_STEPS = 60, TURNS = 4 };

#define PRECISION 1e-7
#define SETTLED 1e-7
#define SETTLED_STAYS 0.02
#define OWN_STEPS 0.5
#define FELT 0.95
/* Later turns raised the rate of 1 in 50 stages of the published clusters by more than the rest. */
#define FIRST_TURN 0.98
/* Of the requests that go by a node which alone holds its layers: all, but for rounding. */
#define ALL 0.999

static double larger(double one, double other) { return one > other ? one : other; }
static double smaller(double one, double other) { return one < other ? one : other; }

/* The table's value at `amount`, and its slope there. */
static double table_s(const double *seconds, i64 size, double amount, double *slope)
{
    if (amount >= (double)(size - 1)) return seconds[size - 1] + *slope * (amount - (double)(size - 1));
    i64 below = (i64)amount;
    *slope = seconds[below + 1] - seconds[below];
    return seconds[below] + *slope * (amount - (double)below);
}

/* Shares of one group's nodes [from, to) when `held` requests are in the system: what full nodes cannot
   take goes to the others, until no more of these are full. */
static void fill(const Load *load, const double *stays, i64 from, i64 to, double held,
                 double *shares)
{
    double level = 1;
    for (i64 full = 0, before = -1; full > before;) {
        double left = 0, open = 0;
        before = full;
        full = 0;
        for (i64 node = from; node < to; node++) {
            double share = load->share[node], top = load->room[node] / stays[node] / held;
            left += share;
            if (level * share < top) {
                open += share;
                continue;
            }
            left -= top;
            full++;
        }
        if (full > 0 && open > 0) level = larger(level, left / open);
    }
    for (i64 node = from; node < to; node++)
        shares[node] = smaller(level * load->share[node], load->room[node] / stays[node] / held);
}

/* What a rate does to every node, and the caps of its batches. Where no other node holds the same
   layers, `together` requests step as one. */
typedef struct {
    double *shares, *edge_shares, *batches, *cycles, *visits, *caps;
    double together;
} State;

/* A decode's visit of a node that alone holds its layers, in steps of `batch` decodes. */
static double lone_visit_s(const Model *model, const Load *load, i64 node, double batch,
                           double prompts_s)
{
    double slope = load->decode_slope[load->table[node]];
    double decode = table_s(load->decode_s + load->table[node] * load->table_size, load->table_size,
                            larger(batch, 2), &slope);
    return load->layers[node] * decode + batch * model->copy_s_per_token + model->step_overhead_s
           + model->lone_residual_weight * prompts_s;
}

/* Round trip and time to first token at `rate` decode tokens/s, or -1 where it cannot be served. */
static double round_trip_s(const Model *model, const Load *load, const State *state, double rate,
                           double *ttft)
{
    double requests = rate / model->output_tokens;
    double trip = 0, first = 0, outer = 0, slowest = 0, queued = 0, longest = 0;
    for (i64 node = 0; node < load->nodes; node++) {
        double share = state->shares[node];
        if (share <= 0) continue;
        double step = load->layers[node] * load->step_s[node]
                      + model->step_tokens * model->copy_s_per_token + model->step_overhead_s;
        double busy = share * requests * model->steps_per_prompt * step;
        if (busy >= 1) return -1;
        const double *seconds = load->decode_s + load->table[node] * load->table_size;
        double batch = 1, cycle = 0;
        int settled = 0;
        for (int turn = 0; turn < CYCLE_STEPS && !settled; turn++) {
            double slope = load->decode_slope[load->table[node]];
            double decode = table_s(seconds, load->table_size, larger(batch, 2), &slope);
            cycle = (load->layers[node] * decode + batch * model->copy_s_per_token
                     + model->step_overhead_s) / (1 - busy);
            double growth = model->copy_s_per_token + (batch >= 2 ? load->layers[node] * slope : 0);
            growth = share * rate * growth / (1 - busy);
            double following = larger(1, share * rate * cycle);
            if (growth < 1) following = larger(1, batch + (following - batch) / (1 - growth));
            settled = fabs(following - batch) <= SETTLED * batch;
            batch = following;
        }
        if (!settled || batch > smaller(load->decode_limit[node], state->caps[node])) return -1;
        state->cycles[node] = cycle;
        state->batches[node] = batch;
        double taken = cycle * (1 - busy) + step;
        double filled = share * requests * model->chunks_per_prompt * taken;
        if (filled >= 1) return -1;
        if (node == 0 || load->group[node] != load->group[node - 1]) queued = 0;
        queued += share * filled * taken * (model->steps_per_prompt + 1) / 2 / (1 - filled);
        longest = larger(longest, queued);
        double prompts_s = busy * model->squares_ratio * step / 2;
        double visit = model->cycle_weight * cycle + model->residual_weight * prompts_s;
        if (state->together > 0 && share >= ALL) {
            batch = larger(batch, smaller(state->together, load->decode_limit[node]));
            state->batches[node] = batch;
            visit = larger(visit, lone_visit_s(model, load, node, batch, prompts_s));
        }
        visit += model->convoy_weight * share * step * smaller(1, 2 * requests)
                 + model->own_weight * step * smaller(1, share * requests);
        state->visits[node] = visit;
        trip += share * visit;
        first += share * step;
        if (step > slowest) slowest = step;
    }
    for (i64 edge = 0; edge < load->edges; edge++) {
        double share = state->edge_shares[edge];
        if (share <= 0) continue;
        i64 tail = load->tails[edge], head = load->heads[edge];
        double bytes = tail < 0 || head < 0 ? model->token_bytes : model->activation_bytes;
        double bandwidth = load->bandwidth[edge] * (1 - rate * load->crowding[edge]);
        if (!(bandwidth > 0)) return -1;
        double per_token = bytes / bandwidth;
        double decodes = share * rate * per_token;
        double prompts = head < 0 ? 0 : share * requests * model->prompt_tokens * per_token;
        if (decodes + prompts >= 1) return -1;
        double batch = 1;
        if (model->grouped > 0 && tail >= 0) batch = larger(1, state->batches[tail] * share / state->shares[tail]);
        double message = batch * per_token, chunk = model->step_tokens * per_token;
        double wait = decodes * message / 2 / (1 - decodes);
        if (model->prompts_first > 0)
            wait = (decodes * message + prompts * model->link_wait_weight * chunk) / 2
                   / (1 - decodes - prompts);
        else
            wait += prompts * smaller(chunk, model->piece_bytes / bandwidth) / 2;
        if (tail < 0 || head < 0) outer += share * (load->latency[edge] + message + wait);
        else trip += share * (load->latency[edge] + message + wait);
        if (head < 0) continue;
        double sent = chunk / (1 - decodes);
        first += share * (sent + prompts * model->link_queue_weight * sent / 2
                                     / (1 - decodes - prompts));
        if (sent > slowest) slowest = sent;
    }
    *ttft = trip + outer + longest + first + larger(0, model->steps_per_prompt - 1) * slowest;
    return trip + load->return_s;
}

/* Shares of all nodes and connections; returns how many requests fit, 0 for none. */
static double spread(const Load *load, const double *stays, double *shares, double *edge_shares)
{
    double held = INFINITY;
    for (i64 from = 0, to; from < load->nodes; from = to) {
        double room = 0, share = 0;
        for (to = from; to < load->nodes && load->group[to] == load->group[from]; to++) {
            if (load->share[to] > 0) room += load->room[to] / stays[to];
            share += load->share[to];
        }
        if (share > 0) held = smaller(held, room / share);
    }
    if (!(held > 0) || held == INFINITY) return 0;
    for (i64 from = 0, to; from < load->nodes; from = to) {
        for (to = from; to < load->nodes && load->group[to] == load->group[from]; to++) {}
        fill(load, stays, from, to, held, shares);
    }
    for (i64 edge = 0; edge < load->edges; edge++) {
        i64 tail = load->tails[edge], head = load->heads[edge];
        edge_shares[edge] = load->edge_share[edge];
        if (edge_shares[edge] <= 0) continue;
        if (tail >= 0) edge_shares[edge] *= shares[tail] / load->share[tail];
        if (head >= 0) edge_shares[edge] *= shares[head] / load->share[head];
    }
    return held;
}

/* How many of `held` requests step as one: what fills a step on a node of the widest group of nodes.
   0 where every group has several nodes, and where latency limits keep steps short. On a slow link
   messages follow each other no faster than steps take them, so fewer gather. */
static void count_together(const Model *model, const Load *load, double held, State *state)
{
    double widest = 1, stages = 0, alone = 0;
    for (i64 from = 0, to; from < load->nodes; from = to) {
        double most = 0;
        for (to = from; to < load->nodes && load->group[to] == load->group[from]; to++) {
            most = larger(most, state->shares[to]);
            stages += state->shares[to];
        }
        if (most > 0) widest = smaller(widest, most);
        alone = larger(alone, most);
    }
    double groups = larger(1, smaller(model->most_micro_batches, stages));
    int limited = model->tpot_limit_s < INFINITY || model->ttft_limit_s < INFINITY;
    state->together = 0;
    if (model->most_micro_batches > 0 && alone >= ALL && !limited)
        state->together = held * widest / groups;
    for (i64 edge = 0; edge < load->edges && state->together > 0; edge++) {
        i64 head = load->heads[edge];
        if (load->tails[edge] < 0 || head < 0 || state->shares[head] < ALL) continue;
        double step_s = lone_visit_s(model, load, head, state->together, 0);
        double most = step_s * load->bandwidth[edge] / model->activation_bytes;
        state->together = smaller(state->together, most);
    }
}

/* Requests that are in flight at `rate` beyond `held`; infinite where it cannot be served. */
static double excess_at(const Model *model, const Load *load, const State *state, double rate,
                        double held, double *trip, double *ttft)
{
    *trip = round_trip_s(model, load, state, rate, ttft);
    double requests = rate / model->output_tokens;
    if (*trip < 0 || *trip > model->tpot_limit_s || *ttft > model->ttft_limit_s
        || requests * *ttft > model->prompts_in_flight)
        return INFINITY;
    return rate * *trip + requests * *ttft - held;
}

/* The largest rate whose requests fit. */
static void largest(const Model *model, const Load *load, const State *state, double held,
                    double result[4])
{
    for (int position = 0; position < 4; position++) result[position] = 0;
    double ttft, trip = round_trip_s(model, load, state, 0, &ttft);
    if (trip <= 0 || trip > model->tpot_limit_s || ttft > model->ttft_limit_s) return;
    result[2] = trip;
    result[3] = ttft;
    double low = 0, high = held / trip, below = -held, above = INFINITY;
    int side = 0;
    for (int step = 0; step < SEARCH_STEPS && high - low > PRECISION * high; step++) {
        double rate = (low + high) / 2;
        if (above < INFINITY) rate = low - below * (high - low) / (above - below);
        double excess = excess_at(model, load, state, rate, held, &trip, &ttft);
        if (excess == INFINITY) {
            high = rate;
            above = INFINITY;
            side = 0;
        } else if (excess > 0) {
            high = rate;
            above = excess;
            if (side > 0) below /= 2;
            side = 1;
        } else {
            low = rate;
            below = excess;
            if (side < 0) above /= 2;
            side = -1;
            result[2] = trip;
            result[3] = ttft;
            if (excess > -PRECISION * held) break;
        }
    }
    result[0] = low;
    result[1] = low * result[2] + low / model->output_tokens * result[3];
}

/* Sets the cap of a node's batches by the cycles that fit into the time requests are away; returns
   how much it changed, 0 where the batches do not feel it. */
static double measure_cap(const Model *model, const State *state, i64 node, double trip,
                          double held)
{
    double before = state->caps[node], batch = state->batches[node];
    double cycles = (trip - state->visits[node]) / state->cycles[node] + OWN_STEPS;
    double micro_batches = smaller(larger(cycles, 1), model->most_micro_batches);
    double cap = larger(model->cap_floor, held * state->shares[node] / micro_batches);
    if (before < INFINITY) state->caps[node] = (before + cap) / 2;
    else if (batch > cap) state->caps[node] = cap;
    if (batch < FELT * smaller(before, cap)) return 0;
    return fabs(cap - smaller(before, 2 * cap)) / cap;
}

void sustained(const Model *model, const Load *load, double least, double *work, double result[4])
{
    i64 nodes = load->nodes;
    State state = {work, work + 6 * nodes, work + nodes, work + 2 * nodes, work + 3 * nodes,
                   work + 4 * nodes, 0};
    double *stays = work + 5 * nodes;
    for (int position = 0; position < 4; position++) result[position] = 0;
    for (i64 node = 0; node < nodes; node++) {
        stays[node] = 1;
        state.visits[node] = state.cycles[node] = 0;
        state.batches[node] = 1;
        state.caps[node] = INFINITY;
    }
    double in_flight = model->prompts_in_flight * (model->output_tokens + 1);
    for (int turn = 0; turn < TURNS; turn++) {
        double held = spread(load, stays, state.shares, state.edge_shares);
        if (!(held > 0)) {
            for (int position = 0; position < 4; position++) result[position] = 0;
            return;
        }
        in_flight = smaller(in_flight, held);
        count_together(model, load, in_flight, &state);
        for (i64 node = 0; node < nodes && model->cap_divisor > 0; node++)
            state.caps[node] = larger(model->cap_floor, held * state.shares[node] / model->cap_divisor);
        double ttft, trip;
        if (turn == 0 && least > 0
            && excess_at(model, load, &state, FIRST_TURN * least, held, &trip, &ttft) > 0)
            return;
        largest(model, load, &state, held, result);
        if (result[0] <= 0 || turn + 1 == TURNS) return;
        double change = state.together > 0 ? 1 - result[1] / in_flight : 0;
        in_flight = result[1];
        trip = round_trip_s(model, load, &state, result[0], &ttft);
        for (i64 from = 0, to; from < nodes; from = to) {
            double whole = 0, sum = 0;
            for (to = from; to < nodes && load->group[to] == load->group[from]; to++) {
                whole += state.shares[to];
                sum += state.shares[to] * state.visits[to];
            }
            for (i64 node = from; node < to && whole > 0; node++) {
                double stay = 1 + (state.visits[node] - sum / whole) / trip;
                change = larger(change, fabs(stay - stays[node]));
                stays[node] = (stays[node] + stay) / 2;
            }
        }
        for (i64 node = 0; node < nodes && model->most_micro_batches > 0; node++)
            if (state.shares[node] > 0)
                change = larger(change, measure_cap(model, &state, node, trip, held));
        if (change <= SETTLED_STAYS) return;
    }
}
