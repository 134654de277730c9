/* What Python calls, through ctypes. */

#include "engine.h"

#include <stdlib.h>
#include <string.h>

void simulator_free(Engine *e);
void simulator_reset_statistics(Engine *e);

Engine *simulator_new(const Policy *policy, i64 num_nodes, const NodeSetup *const *setups,
                      i64 num_shares, const double *shared) {
    i64 num_segments = 0;
    for (i64 i = 0; i < num_nodes; i++) num_segments += setups[i]->num_segments;
    Engine *e = calloc(1, sizeof(Engine));
    if (!e) return 0;
    e->policy = *policy;
    e->num_nodes = (i32)num_nodes;
    e->num_shares = (i32)num_shares;
    e->free_item = e->free_message = e->free_request = -1;
    e->step_messages = (List){-1, -1};
    e->nodes = calloc((size_t)num_nodes + 1, sizeof(Node));
    e->segments = calloc((size_t)num_segments + 1, sizeof(Segment));
    e->shares = calloc((size_t)num_shares + 1, sizeof(Share));
    if (!e->nodes || !e->segments || !e->shares) {
        simulator_free(e);
        return 0;
    }
    for (i64 i = 0; i < num_shares; i++) e->shares[i].bandwidth = shared[i];
    i32 segment = 0;
    for (i64 i = 0; i < num_nodes; i++) {
        Node *node = &e->nodes[i];
        node->setup = *setups[i];
        node->first_segment = segment;
        node->batch = (List){-1, -1};
        node->step_s = node->away_s = NOT_YET;
        for (i64 at = 0; at < node->setup.num_segments; at++)
            e->segments[segment++] = (Segment){node->setup.segment_layers[at], {-1, -1}, {-1, -1}};
    }
    simulator_reset_statistics(e);
    return e;
}

void simulator_free(Engine *e) {
    if (!e) return;
    for (i32 i = 0; i < e->num_requests; i++) {
        free(e->requests[i].stages);
        free(e->requests[i].stays);
    }
    for (i32 i = 0; i < e->num_links; i++) free(e->links[i].shares);
    for (i32 i = 0; e->shares && i < e->num_shares; i++) free(e->shares[i].links);
    free(e->shares);
    free(e->nodes);
    free(e->segments);
    free(e->links);
    free(e->requests);
    free(e->items);
    free(e->messages);
    free(e->heap);
    free(e->occurred);
    free(e);
}

/* The number of the new link, -1 without memory. */
i64 simulator_add_link(Engine *e, i64 source, i64 target, double bandwidth, double latency,
                       i64 num_shares, const i64 *shares) {
    Link *links = grown(e->links, &e->room_links, e->num_links, sizeof(Link));
    if (!links) return -1;
    e->links = links;
    Link *link = &e->links[e->num_links];
    memset(link, 0, sizeof(Link));
    link->source = (i32)source;
    link->target = (i32)target;
    link->bandwidth = link->pace = bandwidth;
    link->latency = latency;
    link->changed_s = e->now;
    link->due_lane = NO_LANE;
    for (i32 lane = DECODES; lane <= PROMPTS; lane++) {
        link->queue[lane] = (List){-1, -1};
        link->active[lane] = link->open[lane] = -1;
    }
    link->shares = calloc((size_t)num_shares + 1, sizeof(i32));
    if (!link->shares) return -1;
    link->num_shares = (i32)num_shares;
    i64 number = e->num_links++;
    for (i64 i = 0; i < num_shares; i++) {
        Share *share = &e->shares[shares[i]];
        i32 *sharing = grown(share->links, &share->room_links, share->num_links, sizeof(i32));
        if (!sharing) return -1;
        share->links = sharing;
        share->links[share->num_links++] = (i32)number;
        link->shares[i] = (i32)shares[i];
    }
    return number;
}

static i32 free_request(Engine *e) {
    i32 number = e->free_request;
    if (number >= 0) {
        e->free_request = e->requests[number].next_free;
        return number;
    }
    Request *requests = grown(e->requests, &e->room_requests, e->num_requests, sizeof(Request));
    if (!requests) return -1;
    e->requests = requests;
    memset(&requests[e->num_requests], 0, sizeof(Request));
    return (i32)e->num_requests++;
}

/* Send the tokens of the sequence on their way: 1, or 0 without memory. */
i64 simulator_begin(Engine *e, i64 number, i64 grow_at, i64 num_stages, const Stage *stages,
                    i64 link_home, i64 link_back) {
    Request *request = &e->requests[number];
    i64 prefill = request->prompt_tokens + request->produced;
    i64 chunk = e->policy.chunk_tokens ? e->policy.chunk_tokens : prefill;
    if (!reserve_items(e, (prefill + chunk - 1) / chunk)) return 0;
    if (request->room_stages < num_stages) {
        Stage *room = realloc(request->stages, (size_t)num_stages * sizeof(Stage));
        if (!room) return 0;
        request->stages = room;
        Stay *stays = realloc(request->stays, (size_t)num_stages * sizeof(Stay));
        if (!stays) return 0;
        request->stays = stays;
        request->room_stages = (i32)num_stages;
    }
    memcpy(request->stages, stages, (size_t)num_stages * sizeof(Stage));
    request->num_stages = (i32)num_stages;
    for (i64 i = 0; i < num_stages; i++) request->stays[i] = (Stay){NOT_YET, 0, 0, 0.0};
    request->link_home = (i32)link_home;
    request->link_back = (i32)link_back;
    request->prefill_tokens = prefill;
    request->sampled = request->produced;
    request->grow_at = grow_at;
    account_running(e);
    e->running++;
    for (i64 i = 0; i < num_stages; i++) {
        account_node(&e->nodes[stages[i].node], e->now);
        e->nodes[stages[i].node].resident++;
    }
    for (i64 left = prefill; left > 0;) {
        i64 tokens = chunk < left ? chunk : left;
        left -= tokens;
        i32 item = new_item(e, (i32)number, (i32)tokens, left == 0);
        i32 message = new_message(e, stages[0].link, (double)tokens * e->policy.token_bytes);
        e->messages[message].items = (List){item, item};
        e->messages[message].count = 1;
        enqueue(e, message);
    }
    return 1;
}

static void put_back(Engine *e, i32 number) {
    e->requests[number].next_free = e->free_request;
    e->free_request = number;
}

/* The number of the new request, -1 without memory. */
i64 simulator_admit(Engine *e, i64 prompt_tokens, i64 output_tokens) {
    i32 number = free_request(e);
    if (number < 0) return -1;
    Request *request = &e->requests[number];
    request->prompt_tokens = prompt_tokens;
    request->output_tokens = output_tokens;
    request->produced = 0;
    request->first_token_s = request->last_token_s = 0.0;
    return number;
}

void simulator_give_up(Engine *e, i64 number) { put_back(e, (i32)number); }

void simulator_set_grow_at(Engine *e, i64 request, i64 tokens) {
    e->requests[request].grow_at = tokens;
}

/* 1 and the next occurrence, 0 when none came until then, -1 without memory. */
i64 simulator_advance(Engine *e, double until_s, Occurrence *occurrence) {
    while (e->first_occurred == e->num_occurred) {
        e->first_occurred = e->num_occurred = 0;
        if (e->failed) return -1;
        if (!e->num_events || e->heap[0].time > until_s) {
            e->now = until_s;
            return 0;
        }
        Event event = next_event(e);
        e->now = event.time;
        e->counted.events++;
        if (event.kind == STEP_DONE)
            step_done(e, event.subject);
        else if (event.kind == LINK_DUE)
            link_due(e, event.subject, event.version);
        else if (event.kind == ARRIVAL)
            receive(e, event.subject);
        else
            refused(e, event.subject, event.version);
    }
    *occurrence = e->occurred[e->first_occurred++];
    if (occurrence->kind == FINISHED) put_back(e, (i32)occurrence->request);
    return 1;
}

/* Seconds that the request's items waited for steps, by stage of its way. */
void simulator_waits(const Engine *e, i64 number, double *waited_s) {
    const Request *request = &e->requests[number];
    for (i32 i = 0; i < request->num_stages; i++) waited_s[i] = request->stays[i].waited_s;
}

double simulator_now(const Engine *e) { return e->now; }

i64 simulator_waiting(const Engine *e, i64 node) { return e->nodes[node].waiting; }

void simulator_reset_statistics(Engine *e) {
    double now = e->now;
    e->stats_since = e->running_changed_s = now;
    e->counted = (Totals){.events = e->counted.events};
    memset(e->gaps, 0, sizeof(e->gaps));
    for (i32 i = 0; i < e->num_nodes; i++) {
        Node *node = &e->nodes[i];
        node->counted = (NodeStatistics){.kv_peak = node->held};
        node->changed_s = node->busy_since = now;
    }
    for (i64 i = 0; i < e->num_links; i++) {
        Link *link = &e->links[i];
        link->counted = (LinkStatistics){.waiting_peak = link->waiting};
        link->changed_s = now;
    }
}

/* Fills the totals, the gaps between tokens, and what was counted at each node and link. */
void simulator_statistics(Engine *e, Totals *totals, i64 *gaps, NodeStatistics *nodes,
                          LinkStatistics *links) {
    account_running(e);
    *totals = e->counted;
    totals->seconds = e->now - e->stats_since;
    memcpy(gaps, e->gaps, sizeof(e->gaps));
    for (i32 i = 0; i < e->num_nodes; i++) {
        account_node(&e->nodes[i], e->now);
        account_busy(&e->nodes[i], e->now);
        nodes[i] = e->nodes[i].counted;
        nodes[i].kv_integral *= (double)e->policy.page_tokens;
        nodes[i].kv_peak *= e->policy.page_tokens;
    }
    for (i64 i = 0; i < e->num_links; i++) {
        account_link(&e->links[i], e->now);
        links[i] = e->links[i].counted;
    }
}
