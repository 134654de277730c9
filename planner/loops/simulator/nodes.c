/* Steps on nodes, and the coordinator that collects tokens and sends requests round again. */

#include "engine.h"

#include <math.h>

static double seconds(const StepTimes *times, i64 amount) {
    i64 last = times->size - 1;
    if (amount <= last) return times->seconds[amount];
    return times->seconds[last] + (double)(amount - last) * times->slope_s;
}

void append_item(Engine *e, List *list, i32 item) {
    e->items[item].next = -1;
    if (list->last >= 0)
        e->items[list->last].next = item;
    else
        list->first = item;
    list->last = item;
}

static i32 take_first(Engine *e, List *list) {
    i32 item = list->first;
    list->first = e->items[item].next;
    if (list->first < 0) list->last = -1;
    return item;
}

static Stay *stay_of(Engine *e, i32 item) {
    return &e->requests[e->items[item].request].stays[e->items[item].stage];
}

static void wait(Engine *e, Segment *segment, i32 item) {
    e->items[item].order = ++e->queue_order;
    if (e->policy.measures_waits && !is_gone(e, item)) stay_of(e, item)->waited_s -= e->now;
    append_item(e, e->items[item].tokens ? &segment->prompts : &segment->decodes, item);
}

/* Out of the batch with those whose requests have just lost their pages. */
static void drop_gone(Engine *e, Node *node, i64 *prompt_tokens, i64 *decodes) {
    i32 item = node->batch.first;
    node->batch = (List){-1, -1};
    while (item >= 0) {
        i32 following = e->items[item].next;
        if (!is_gone(e, item)) {
            append_item(e, &node->batch, item);
        } else {
            i64 tokens = e->items[item].tokens;
            *prompt_tokens -= tokens;
            *decodes -= !tokens;
            node->batch_count--;
            drop_item(e, item);
        }
        item = following;
    }
}

static double averaged(double average, double value) {
    return average < 0.0 ? value : average + AVERAGE_WEIGHT * (value - average);
}

static double micro_batches(const Policy *policy, const Node *node) {
    if (policy->most_micro_batches <= 0) return policy->cap_divisor;
    if (node->step_s <= 0.0 || node->away_s < 0.0) return 0.0;
    double steps = node->away_s / node->step_s + OWN_STEPS;
    if (steps < 1.0) steps = 1.0;
    return steps < policy->most_micro_batches ? steps : policy->most_micro_batches;
}

static void came_back(const Engine *e, Node *node, i32 item) {
    const Item *arrived = &e->items[item];
    double left_s = e->requests[arrived->request].stays[arrived->stage].left_s;
    if (!arrived->tokens && left_s >= 0.0) node->away_s = averaged(node->away_s, e->now - left_s);
}

/* The first that waits; those of requests that lost their pages are dropped. */
static i32 first_of(Engine *e, Node *node, List *list) {
    while (e->any_lost && list->first >= 0 && is_gone(e, list->first)) {
        drop_item(e, take_first(e, list));
        node->waiting--;
    }
    return list->first;
}

static void take(Engine *e, i32 number_of_node, i64 *taken_prompt_tokens, i64 *taken_decodes) {
    Node *node = &e->nodes[number_of_node];
    const Policy *policy = &e->policy;
    account_node(node, e->now);
    i64 decode_limit = node->setup.decode_limit;
    double number = micro_batches(policy, node);
    if (number > 0) {
        i64 cap = (i64)ceil((double)node->resident / number);
        if (cap < policy->cap_floor) cap = policy->cap_floor;
        if (cap < decode_limit) decode_limit = cap;
    }
    Segment *segment = &e->segments[node->first_segment + node->position];
    i64 prompt_tokens = 0, prompts = 0, decodes = 0, pages = 0;
    node->batch = (List){-1, -1};
    node->batch_count = 0;
    for (;;) {
        i32 prompt = first_of(e, node, &segment->prompts);
        i32 decode = decodes < decode_limit ? first_of(e, node, &segment->decodes) : -1;
        if (prompt >= 0 &&
            (prompts == node->setup.prompt_limit ||
             (policy->chunk_tokens && prompt_tokens + e->items[prompt].tokens > policy->chunk_tokens)))
            prompt = -1;
        if (prompt < 0 && decode < 0) break;
        if (decode < 0 || (prompt >= 0 && e->items[prompt].order < e->items[decode].order)) {
            prompts++;
            prompt_tokens += e->items[prompt].tokens;
            append_item(e, &node->batch, take_first(e, &segment->prompts));
        } else {
            const Item *taken = &e->items[decode];
            decodes++;
            if (needs_block(e, node, decode))
                pages += e->requests[taken->request].stages[taken->stage].layers;
            append_item(e, &node->batch, take_first(e, &segment->decodes));
        }
        if (policy->measures_waits) stay_of(e, node->batch.last)->waited_s += e->now;
        node->batch_count++;
    }
    node->waiting -= node->batch_count;
    if (pages) make_room(e, number_of_node, pages);
    if (pages && e->any_lost) drop_gone(e, node, &prompt_tokens, &decodes);
    *taken_prompt_tokens = prompt_tokens;
    *taken_decodes = decodes;
}

/* The next batch into the node: of the next segment that has something. */
static void next_batch(Engine *e, i32 number, i64 *prompt_tokens, i64 *decodes) {
    Node *node = &e->nodes[number];
    i32 position = node->position;
    for (i32 offset = 1; offset <= node->setup.num_segments; offset++) {
        position = (node->position + offset) % node->setup.num_segments;
        const Segment *segment = &e->segments[node->first_segment + position];
        if (segment->decodes.first >= 0 || segment->prompts.first >= 0) break;
    }
    node->position = position;
    take(e, number, prompt_tokens, decodes);
}

static void start_step(Engine *e, i32 number) {
    Node *node = &e->nodes[number];
    if (node->busy) return;
    i64 prompt_tokens, decodes;
    do {
        if (!node->waiting) return;
        next_batch(e, number, &prompt_tokens, &decodes);
    } while (!node->batch_count); /* all that waited there had lost their pages */
    i32 position = node->position;
    double prompt_s = seconds(&node->setup.prompt, prompt_tokens);
    i64 charged = decodes < node->setup.least_decodes ? node->setup.least_decodes : decodes;
    double decode_s = decodes ? seconds(&node->setup.decode, charged) : 0.0;
    if (e->policy.chunk_tokens && prompt_tokens && !decodes) {
        double least = seconds(&node->setup.decode, node->setup.least_decodes);
        if (prompt_s < least) prompt_s = least;
    }
    double shared_s = prompt_tokens && decodes ? node->setup.shared_s : 0.0;
    double duration = (double)e->segments[node->first_segment + position].layers *
                      (prompt_s + decode_s - shared_s);
    if (position == 0) {
        duration += (double)node->copied_tokens * e->policy.copy_s_per_token;
        node->copied_tokens = 0;
    }
    duration += e->policy.overhead_s;
    node->busy = 1;
    node->has_decodes = decodes > 0;
    node->busy_since = node->began_s = e->now;
    node->busy_until = e->now + duration;
    foresee(e, node->busy_until, STEP_DONE, number, 0);
    node->counted.steps++;
    node->counted.decode_steps += decodes > 0;
    node->counted.decodes += decodes;
    node->counted.decodes_squared += decodes * decodes;
    node->counted.decodes_resident += decodes * node->resident;
    node->counted.prompt_tokens += prompt_tokens;
}

static void return_token(Engine *e, Node *node, i32 item) {
    i32 number = e->items[item].request;
    Request *request = &e->requests[number];
    request->sampled++;
    e->items[item].tokens = 0;
    add_to_message(e, item, request->link_home, DECODES, e->policy.token_bytes);
    if (request->link_back == VIA_COORDINATOR || request->sampled == request->output_tokens) return;
    if (!reserve_items(e, 1)) {
        e->failed = 1;
        return;
    }
    i32 following = new_item(e, number, 0, 0);
    e->items[following].opens_block = (int16_t)opens_block(e, request);
    if (request->link_back == SAME_NODE) {
        if (e->policy.most_micro_batches > 0) came_back(e, node, following);
        wait(e, &e->segments[node->first_segment + request->stages[0].segment], following);
        node->waiting++;
    } else {
        add_to_message(e, following, request->link_back, DECODES, e->policy.token_bytes);
    }
}

static void hand_on(Engine *e, Node *node, i32 item) {
    int measures = e->policy.most_micro_batches > 0;
    while (item >= 0) {
        Item *moved = &e->items[item];
        i32 following = moved->next;
        if (e->any_lost && is_gone(e, item)) {
            drop_item(e, item);
            item = following;
            continue;
        }
        const Request *request = &e->requests[moved->request];
        i64 tokens = moved->tokens ? moved->tokens : 1;
        if (measures && (moved->ends_prompt || !moved->tokens))
            request->stays[moved->stage].left_s = e->now;
        i32 stage = moved->stage + 1;
        if (stage < request->num_stages) {
            moved->stage = stage;
            add_to_message(e, item, request->stages[stage].link, lane_of(e, item),
                           (double)tokens * e->policy.activation_bytes);
        } else if (moved->ends_prompt || !moved->tokens) {
            return_token(e, node, item);
        } else {
            drop_item(e, item);
        }
        item = following;
    }
    send_messages(e);
}

void step_done(Engine *e, i32 number) {
    Node *node = &e->nodes[number];
    account_node(node, e->now);
    account_busy(node, e->now);
    node->busy = 0;
    if (node->has_decodes)
        node->step_s = averaged(node->step_s, node->busy_until - node->began_s);
    i32 item = node->batch.first;
    node->batch = (List){-1, -1};
    if (node->position + 1 < node->setup.num_segments) {
        Segment *segment = &e->segments[node->first_segment + node->position + 1];
        while (item >= 0) {
            i32 following = e->items[item].next;
            wait(e, segment, item);
            item = following;
        }
        node->waiting += node->batch_count;
    } else {
        hand_on(e, node, item);
    }
    start_step(e, number);
}

static void finish(Engine *e, i32 number) {
    leave(e, number);
    e->counted.finished++;
    occur(e, FINISHED, number);
}

static void collect(Engine *e, i32 item) {
    while (item >= 0) {
        Item *returned = &e->items[item];
        i32 following = returned->next, number = returned->request;
        Request *request = &e->requests[number];
        if (returned->attempt != request->attempt) {
            drop_item(e, item);
            item = following;
            continue;
        }
        if (request->produced == 0) {
            request->first_token_s = e->now;
            e->counted.first_tokens++;
            e->counted.prompt_tokens += request->prompt_tokens;
        } else {
            e->gaps[bucket_of(e->now - request->last_token_s)]++;
        }
        request->produced++;
        request->last_token_s = e->now;
        e->counted.output_tokens++;
        if (request->produced == 1) occur(e, FIRST_TOKEN, number);
        if (request->produced == request->output_tokens) {
            finish(e, number);
            drop_item(e, item);
        } else {
            if (request->prompt_tokens + request->produced > request->grow_at)
                occur(e, OUTGROWN, number);
            if (request->link_back == VIA_COORDINATOR) {
                returned->stage = 0;
                returned->opens_block = (int16_t)opens_block(e, request);
                add_to_message(e, item, request->stages[0].link, DECODES,
                               e->policy.token_bytes);
            } else {
                drop_item(e, item);
            }
        }
        item = following;
    }
    send_messages(e);
}

void receive(Engine *e, i32 message) {
    i32 target = e->links[e->messages[message].link].target;
    i32 item = e->messages[message].items.first;
    drop_message(e, message);
    if (target == e->num_nodes) {
        collect(e, item);
        return;
    }
    Node *node = &e->nodes[target];
    account_node(node, e->now);
    while (item >= 0) {
        Item *arrived = &e->items[item];
        i32 following = arrived->next;
        int gone = e->any_lost && is_gone(e, item);
        if (!gone && arrived->tokens && !enter(e, target, item)) {
            lose(e, target, arrived->request, arrived->stage);
            gone = 1;
        }
        if (gone) {
            drop_item(e, item);
            item = following;
            continue;
        }
        i32 segment = 0; /* looked up only where there are several: it is far from here in memory */
        if (node->setup.num_segments > 1)
            segment = e->requests[arrived->request].stages[arrived->stage].segment;
        node->copied_tokens += arrived->tokens ? arrived->tokens : 1;
        if (e->policy.most_micro_batches > 0) came_back(e, node, item);
        wait(e, &e->segments[node->first_segment + segment], item);
        node->waiting++;
        item = following;
    }
    start_step(e, target);
}
