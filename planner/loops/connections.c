/* What a load's connections are: bandwidth, latency, what others take of shared bandwidth, the way back. */

#include "sustained.h"

#include <math.h>

/* `taken` gets the shared bandwidths that the link takes; returns how many. */
static i64 taken_by(const Links *links, i64 from, i64 to, i64 *taken)
{
    i64 count = 0, ends = links->nodes + 1;
    for (i64 at = links->leaving_start[from]; at < links->leaving_start[from + 1]; at++) {
        i64 share = links->leaving[at];
        if (links->is_card[share] || !links->member[share * ends + to]) taken[count++] = share;
    }
    for (i64 at = links->reaching_start[to]; at < links->reaching_start[to + 1]; at++) {
        i64 share = links->reaching[at];
        if (links->is_card[share] || !links->member[share * ends + from]) taken[count++] = share;
    }
    return count;
}

static i64 end_of(const Links *links, const i64 *order, i64 node)
{
    return node < 0 ? links->nodes : order[node];
}

/* Limits connections to the shared bandwidths they take, and finds what others take of these. */
static void crowd(const Model *model, const Links *links, const i64 *order, Load *load, double *carried,
                  i64 *taken)
{
    double per_output = model->activation_bytes * (1 + model->prompt_tokens / model->output_tokens);
    for (i64 share = 0; share < links->shares; share++) carried[share] = 0;
    for (int turn = 0; turn < 2; turn++)
        for (i64 edge = 0; edge < load->edges; edge++) {
            i64 tail = load->tails[edge], head = load->heads[edge];
            double bytes = tail < 0 || head < 0 ? 0 : load->edge_share[edge] * per_output;
            i64 from = end_of(links, order, tail), to = end_of(links, order, head);
            i64 count = taken_by(links, from, to, taken);
            for (i64 at = 0; at < count; at++) {
                i64 share = taken[at];
                if (turn == 0) {
                    carried[share] += bytes;
                    continue;
                }
                double bandwidth = links->share_bandwidth[share];
                load->bandwidth[edge] = fmin(load->bandwidth[edge], bandwidth);
                load->crowding[edge] = fmax(load->crowding[edge], (carried[share] - bytes) / bandwidth);
            }
        }
}

/* Seconds from the last stage to the first. Which ends belong together is taken to be chance, but a
   request whose first node is its last has its token there already. */
static double return_s(const Model *model, const Links *links, const i64 *order, const Load *load,
                       double *entering, double *leaving)
{
    i64 width = links->nodes + 1, outside = links->nodes;
    double whole = 0, total = 0;
    for (i64 node = 0; node < load->nodes; node++) entering[node] = leaving[node] = 0;
    for (i64 edge = 0; edge < load->edges; edge++) {
        if (load->tails[edge] < 0) entering[load->heads[edge]] += load->edge_share[edge];
        else if (load->heads[edge] < 0) leaving[load->tails[edge]] += load->edge_share[edge];
    }
    for (i64 node = 0; node < load->nodes; node++) {
        double alone = 0;
        if (model->straight_back > 0 && load->share[node] > 0)
            alone = entering[node] * leaving[node] / load->share[node];
        entering[node] -= alone;
        leaving[node] -= alone;
        whole += entering[node];
    }
    if (!(whole > 0)) return 0;
    for (i64 last = 0; last < load->nodes; last++)
        for (i64 first = 0; leaving[last] > 0 && first < load->nodes; first++) {
            if (!(entering[first] > 0)) continue;
            i64 tail = order[last], head = order[first];
            double latency = links->latency[tail * width + outside]
                             + links->latency[outside * width + head];
            if (model->straight_back > 0 && links->bandwidth[tail * width + head] > 0)
                latency = links->latency[tail * width + head];
            total += leaving[last] * entering[first] * latency;
        }
    return total / whole;
}

i64 find_connections(const Model *model, const Links *links, const i64 *order, Load *load, double *work,
                     i64 *taken)
{
    i64 width = links->nodes + 1;
    for (i64 edge = 0; edge < load->edges; edge++) {
        i64 from = end_of(links, order, load->tails[edge]);
        i64 to = end_of(links, order, load->heads[edge]);
        load->bandwidth[edge] = links->bandwidth[from * width + to];
        load->latency[edge] = links->latency[from * width + to];
        load->crowding[edge] = 0;
        if (!(load->bandwidth[edge] > 0)) return 0;
    }
    if (links->shares > 0) crowd(model, links, order, load, work, taken);
    load->return_s = return_s(model, links, order, load, work, work + load->nodes);
    return 1;
}
