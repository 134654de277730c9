/* The state of one simulation.

   An item is what a step works on: a prompt, a chunk of one, or one decode of a request. A node's
   layers are cut into segments wherever requests may enter; it runs one step at a time, with items of
   one segment, by turns, and what has run one waits for the next. Items that have passed a node's
   last segment go, as messages, by links to the next stage. Events at the same time happen in the
   order in which they were foreseen. */

#ifndef HELIXWEB_SIMULATOR_ENGINE_H
#define HELIXWEB_SIMULATOR_ENGINE_H

#include <stddef.h>
#include <stdint.h>

typedef int64_t i64;
typedef int32_t i32;

enum { STEP_DONE, LINK_DUE, ARRIVAL, REFUSED };        /* kinds of events */
enum { FIRST_TOKEN = 1, FINISHED, OUTGROWN, PREEMPTED }; /* kinds of occurrences */
enum { NO_LANE = -1, DECODES, PROMPTS };
enum { SAME_NODE = -2, VIA_COORDINATOR = -1 }; /* instead of the link back to the first stage */

#define SUB_BUCKETS 64
#define LEAST_EXPONENT (-20)
#define AVERAGE_WEIGHT 0.05
#define OWN_STEPS 0.5
#define NOT_YET (-1.0) /* a time that is not known */
#define NUM_BUCKETS (40 * SUB_BUCKETS)

typedef struct {
    double time;
    i64 order;
    i32 kind, subject, version;
} Event;

typedef struct {
    i32 first, last; /* of a chain by `next`, -1 for none */
} List;

typedef struct {
    i64 order; /* of arrival in the queue that it waits in */
    i32 request, attempt, stage, tokens, next;
    int16_t ends_prompt, opens_block;
} Item;

typedef struct {
    List items;
    i32 link, next, count;
    double size;
} Message;

typedef struct {
    i32 node, segment, layers, link;
} Stage;

typedef struct {
    double left_s; /* when it left the stage last, after the prompt */
    i64 came;      /* the order in which requests came to the node */
    i64 blocks;
    double waited_s; /* for steps of the node, where that is measured */
} Stay;

typedef struct {
    i64 prompt_tokens, output_tokens, sampled, produced, grow_at, prefill_tokens;
    double first_token_s, last_token_s;
    Stage *stages;
    Stay *stays; /* at each stage */
    i32 num_stages, room_stages, link_home, link_back, next_free, attempt, lost;
} Request;

/* These structs, Policy and those of statistics are as Python's of planner/simulator/engine.py. */
typedef struct {
    const double *seconds;
    i64 size;
    double slope_s;
} StepTimes;

typedef struct {
    const i64 *segment_layers;
    i64 num_segments;
    StepTimes prompt, decode;
    i64 prompt_limit, decode_limit, pages;
    double refusal_s;
    i64 least_decodes;
    double shared_s;
} NodeSetup;

typedef struct {
    double busy_s;
    i64 steps, decode_steps, decodes, decodes_squared, decodes_resident, prompt_tokens;
    double resident_integral, waiting_integral, kv_integral;
    i64 kv_peak;
} NodeStatistics;

typedef struct {
    double bytes, busy_s, waiting_integral;
    i64 waiting_peak;
} LinkStatistics;

typedef struct {
    double seconds;
    i64 events, output_tokens, first_tokens, prompt_tokens, finished, preempted;
    double running_integral;
} Totals;

typedef struct {
    NodeSetup setup;
    i32 first_segment, position, busy, has_decodes;
    i64 waiting, resident, copied_tokens, held, growth, arrivals; /* growth: a block more for all */
    double busy_since, busy_until, began_s, changed_s, step_s, away_s;
    List batch;
    i64 batch_count;
    NodeStatistics counted; /* KV in pages */
} Node;

typedef struct {
    i64 layers;
    List decodes, prompts;
} Segment;

typedef struct {
    double bandwidth, latency, pace, since, sent, piece, changed_s;
    double left[2];
    List queue[2];
    i32 active[2], open[2]; /* open: the message that the present step is filling */
    i32 source, target, due_lane, version, is_sending, num_shares;
    i32 *shares;
    i64 waiting;
    LinkStatistics counted;
} Link;

typedef struct {
    double bandwidth, level;
    i32 *links;
    i64 num_links, room_links;
} Share;

typedef struct {
    i64 kind, request, tokens;
    double time_s, first_token_s;
} Occurrence;

typedef struct {
    i64 chunk_tokens;
    double cap_divisor, most_micro_batches;
    i64 cap_floor, grouped, decodes_first;
    double piece_bytes;
    i64 page_tokens, measures_waits;
    double overhead_s, copy_s_per_token, activation_bytes, token_bytes;
} Policy;

typedef struct {
    double now, stats_since;
    i64 order, queue_order;
    int failed;   /* no memory */
    int any_lost; /* as long as none was, nobody looks for what is left of them */
    Policy policy;
    Node *nodes;
    Segment *segments;
    Link *links;
    Share *shares;
    Request *requests;
    Item *items;
    Message *messages;
    Event *heap;
    Occurrence *occurred;
    i32 num_nodes, num_shares, free_request, room_items, free_item, room_messages, free_message;
    i64 num_links, room_links, num_requests, room_requests, num_events, room_events;
    i64 num_occurred, first_occurred, room_occurred, running;
    List step_messages; /* of the present step or delivery, in order */
    double running_changed_s;
    Totals counted;
    i64 gaps[NUM_BUCKETS];
} Engine;

/* pools.c */
void *grown(void *array, i64 *room, i64 count, size_t size);
void foresee(Engine *e, double time, i32 kind, i32 subject, i32 version);
Event next_event(Engine *e);
int reserve_items(Engine *e, i64 count);
i32 new_item(Engine *e, i32 request, i32 tokens, i32 ends_prompt);
void drop_item(Engine *e, i32 item);
i32 new_message(Engine *e, i32 link, double size);
void drop_message(Engine *e, i32 message);
void occur(Engine *e, i64 kind, i32 request);
i64 bucket_of(double seconds);

/* pages.c */
int is_gone(const Engine *e, i32 item);
int needs_block(const Engine *e, const Node *node, i32 item);
int opens_block(const Engine *e, const Request *request);
int enter(Engine *e, i32 node, i32 item);
void lose(Engine *e, i32 node, i32 request, i32 stage);
void make_room(Engine *e, i32 node, i64 pages);
void leave(Engine *e, i32 request);
void refused(Engine *e, i32 request, i32 attempt);

/* What is counted over time, brought up to the present before it changes. */
static inline void account_node(Node *node, double now) {
    double passed = now - node->changed_s;
    node->counted.resident_integral += (double)node->resident * passed;
    node->counted.kv_integral += (double)node->held * passed;
    node->counted.waiting_integral += (double)node->waiting * passed;
    node->changed_s = now;
}

static inline void account_busy(Node *node, double now) {
    if (!node->busy) return;
    node->counted.busy_s += now - node->busy_since;
    node->busy_since = now;
}

static inline void account_running(Engine *e) {
    e->counted.running_integral += (double)e->running * (e->now - e->running_changed_s);
    e->running_changed_s = e->now;
}

/* links.c */
i32 lane_of(const Engine *e, i32 item);
void add_to_message(Engine *e, i32 item, i32 link, i32 lane, double size);
void send_messages(Engine *e);
void enqueue(Engine *e, i32 message);
void link_due(Engine *e, i32 link, i32 version);
void account_link(Link *link, double now);

/* nodes.c */
void append_item(Engine *e, List *list, i32 item);
void step_done(Engine *e, i32 node);
void receive(Engine *e, i32 message);

#endif
