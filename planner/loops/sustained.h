/* What the estimate and the search that uses it share. */

#ifndef HELIXWEB_SUSTAINED_H
#define HELIXWEB_SUSTAINED_H

#include "loops.h"

/* As planner.estimate.model.Model.as_array writes it. */
typedef struct {
    double prompt_tokens, output_tokens, step_tokens, steps_per_prompt;
    double cycle_weight, residual_weight, lone_residual_weight, convoy_weight, own_weight;
    double squares_ratio;
    double link_queue_weight, link_wait_weight;
    double step_overhead_s, copy_s_per_token, activation_bytes, token_bytes;
    double piece_bytes, prompts_first, grouped, straight_back, chunks_per_prompt;
    double cap_floor, cap_divisor, most_micro_batches;
    double prompts_in_flight, tpot_limit_s, ttft_limit_s;
} Model;

/* One component; as planner.estimate.load.Load packs it. Nodes of one group are in a row. */
typedef struct {
    i64 nodes, edges, table_size;
    const i64 *group, *table, *tails, *heads;
    const double *share, *layers, *step_s, *room, *decode_limit;
    const double *edge_share;
    double *bandwidth, *latency, *crowding;
    const double *decode_s, *decode_slope;
    double return_s;
} Load;

/* All links between nodes and the coordinator, the last end, and what they share; as
   planner.estimate.shared.Links packs it. */
typedef struct {
    i64 nodes, shares;
    const double *bandwidth, *latency, *share_bandwidth;
    const i64 *is_card, *member, *leaving_start, *leaving, *reaching_start, *reaching;
} Links;

/* Fills the bandwidth, latency and crowding of the load's edges, and its `return_s`; node `at` of the load
   is end `order[at]` of the links. 0 where an edge has no link. `work` has room for 2 * nodes + shares
   numbers, `taken` for 2 * shares. */
i64 find_connections(const Model *model, const Links *links, const i64 *order, Load *load, double *work,
                     i64 *taken);

/* decode tokens/s, requests held, round trip, time to first token; 0 if nothing can be served, or by
   the first turn clearly less than `least`. `work` has room for 6 * nodes + edges numbers. */
void sustained(const Model *model, const Load *load, double least, double *work, double result[4]);

#endif
