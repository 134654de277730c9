/* KV pages: held by requests at every stage, as the runtime's stages do.

   A page is one layer of one request, a block the pages of all layers it runs at a node for
   page_tokens tokens. The pages of a whole prompt are reserved when its first rows come, if there is
   room for them and for a block more of everybody else; else the request is refused. A decode that
   finds no page takes those of the youngest request, its own perhaps. Requests that are refused or
   preempted are lost: nodes drop what comes of them, and the coordinator hears of it when the refusal
   arrives. */

#include "engine.h"

/* Whether a node has nothing to do with it any more: its request lost its pages, and began anew
   perhaps since. */
int is_gone(const Engine *e, i32 item) {
    const Request *request = &e->requests[e->items[item].request];
    return request->lost || request->attempt != e->items[item].attempt;
}

/* Whether the token sampled last begins a block at every stage. */
int opens_block(const Engine *e, const Request *request) {
    return (request->prompt_tokens + request->sampled - 1) % e->policy.page_tokens == 0;
}

/* Whether it is a decode that needs a block at the node, whose segments it may pass one by one: the
   block is of all layers the request runs there, and is taken at the first of them. */
int needs_block(const Engine *e, const Node *node, i32 item) {
    const Item *decode = &e->items[item];
    return decode->opens_block &&
           e->requests[decode->request].stages[decode->stage].segment == node->position;
}

static void hold(Node *node, Stay *stay, i64 blocks, i64 layers) {
    stay->blocks += blocks;
    node->held += blocks * layers;
    if (node->held > node->counted.kv_peak) node->counted.kv_peak = node->held;
}

static void give_back(Node *node, Stay *stay, i64 layers) {
    if (!stay->blocks) return;
    node->held -= stay->blocks * layers;
    node->growth -= layers;
    stay->blocks = 0;
}

/* Reserve pages for the whole prompt when its first rows come; 0 when there is no room for it and a
   block more for everybody else. */
int enter(Engine *e, i32 number, i32 item) {
    Node *node = &e->nodes[number];
    Request *request = &e->requests[e->items[item].request];
    Stay *stay = &request->stays[e->items[item].stage];
    if (stay->blocks) return 1;
    i64 layers = request->stages[e->items[item].stage].layers;
    i64 blocks = (request->prefill_tokens + e->policy.page_tokens - 1) / e->policy.page_tokens;
    if (blocks * layers + node->growth > node->setup.pages - node->held) return 0;
    stay->came = ++node->arrivals;
    node->growth += layers;
    hold(node, stay, blocks, layers);
    return 1;
}

/* The node ends what it has of the request, and says so to the coordinator. */
void lose(Engine *e, i32 number, i32 which, i32 stage) {
    Request *request = &e->requests[which];
    give_back(&e->nodes[number], &request->stays[stage], request->stages[stage].layers);
    if (request->lost) return;
    request->lost = e->any_lost = 1;
    foresee(e, e->now + e->nodes[number].setup.refusal_s, REFUSED, which, request->attempt);
}

static void preempt_youngest(Engine *e, i32 number) {
    i32 youngest = -1, at = 0;
    i64 came = 0;
    for (i32 which = 0; which < e->num_requests; which++) {
        const Request *request = &e->requests[which];
        for (i32 stage = 0; stage < request->num_stages; stage++) {
            const Stay *stay = &request->stays[stage];
            if (request->stages[stage].node != number || !stay->blocks || stay->came <= came)
                continue;
            youngest = which;
            at = stage;
            came = stay->came;
        }
    }
    lose(e, number, youngest, at);
}

static void grow(Engine *e, i32 number, i32 item, int may_preempt) {
    Node *node = &e->nodes[number];
    Request *request = &e->requests[e->items[item].request];
    i32 stage = e->items[item].stage;
    i64 layers = request->stages[stage].layers;
    while (may_preempt && !request->lost && node->setup.pages - node->held < layers)
        preempt_youngest(e, number);
    if (!request->lost) hold(node, &request->stays[stage], 1, layers);
}

/* Pages for the decodes of the node's batch that begin a block, `pages` in all; those who came first
   get theirs first. Who loses its own is still in the batch. */
void make_room(Engine *e, i32 number, i64 pages) {
    Node *node = &e->nodes[number];
    int scarce = pages > node->setup.pages - node->held;
    i64 before = 0;
    i32 next = node->batch.first;
    while (next >= 0) {
        i32 item = next;
        next = e->items[item].next;
        if (!scarce && needs_block(e, node, item)) grow(e, number, item, 0);
    }
    while (scarce) {
        i32 first = -1;
        i64 first_came = 0;
        for (i32 item = node->batch.first; item >= 0; item = e->items[item].next) {
            const Item *decode = &e->items[item];
            i64 came = e->requests[decode->request].stays[decode->stage].came;
            if (!needs_block(e, node, item) || came <= before || (first >= 0 && came > first_came))
                continue;
            first = item;
            first_came = came;
        }
        if (first < 0) return;
        before = first_came;
        grow(e, number, first, 1);
    }
}

/* The request ends everywhere. */
void leave(Engine *e, i32 which) {
    Request *request = &e->requests[which];
    account_running(e);
    e->running--;
    for (i32 stage = 0; stage < request->num_stages; stage++) {
        Node *node = &e->nodes[request->stages[stage].node];
        account_node(node, e->now);
        node->resident--;
        give_back(node, &request->stays[stage], request->stages[stage].layers);
    }
    if (request->lost) request->attempt++;
    request->lost = 0;
}

/* The coordinator hears that a node has given the request up. */
void refused(Engine *e, i32 which, i32 attempt) {
    if (e->requests[which].attempt != attempt) return; /* it had its last token before */
    leave(e, which);
    e->counted.preempted++;
    occur(e, PREEMPTED, which);
}
