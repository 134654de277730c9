/* The state of one simulation.

   An item is what a step works on: a prompt, a chunk of one, or one decode of a request. A node's
   layers are cut into segments wherever requests may enter; it runs one step at a time, with items of
   one segment, by turns, and what has run one waits for the next. Items that have passed a node's
   last segment go, as messages, by links to the next stage. Events at the same time happen in the
   order in which they were foreseen. */

#ifndef HELIXWEB_SIMULATOR_ENGINE_H
#define HELIXWEB_SIMULATOR_ENGINE_H

#include <stdint.h>

typedef int64_t i64;
typedef int32_t i32;

enum { STEP_DONE, LINK_DUE, ARRIVAL, REFUSED };        /* kinds of events */
enum { FIRST_TOKEN = 1, FINISHED, OUTGROWN, PREEMPTED }; /* kinds of occurrences */
enum { FIFO, DECODE_FIRST, TWO_LANES, JUST_IN_TIME };  /* transmission */
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

typedef struct {
    const double *seconds;
    i64 last;
    double slope_s;
} StepTimes;

typedef struct {
    i32 first_segment, num_segments, position, busy, has_decodes;
    i64 prompt_limit, decode_limit, least_decodes, waiting, resident, copied_tokens;
    i64 pages, held, growth, arrivals; /* growth: pages for a block more of every holder */
    StepTimes prompt, decode;
    double refusal_s, shared_s, busy_since, busy_until, began_s, changed_s, step_s, away_s;
    List batch;
    i64 batch_count;
    double busy_s, resident_integral, waiting_integral, held_integral;
    i64 held_peak, steps, decode_steps, decodes, decodes_squared, decodes_resident, prompt_tokens;
} Node;

typedef struct {
    i64 layers;
    List decodes, prompts;
} Segment;

typedef struct {
    double bandwidth, latency, pace, since, sent, piece, changed_s;
    double left[2], rate[2];
    List queue[2];
    i32 active[2], open[2]; /* open: the message that the present step is filling */
    i32 source, target, due_lane, version, is_sending, num_shares;
    i32 *shares;
    i64 overtaken, waiting, waiting_peak;
    double bytes, busy_s, waiting_integral;
} Link;

typedef struct {
    double bandwidth, level;
    i32 *links;
    i32 num_links, room_links;
} Share;

typedef struct {
    i64 kind, request, tokens;
    double time_s, first_token_s;
} Occurrence;

typedef struct {
    i64 chunk_tokens, cap_floor, grouped, transmission, starvation_limit, page_tokens, measures_waits;
    double cap_divisor, most_micro_batches, lane_share, piece_bytes, overhead_s, copy_s_per_token;
    double activation_bytes, token_bytes;
} Policy;

typedef struct {
    double now, stats_since;
    i64 order, events_done, queue_order;
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
    i32 num_nodes, num_shares, num_links, room_links, num_requests, room_requests, free_request;
    i32 room_items, free_item, room_messages, free_message;
    i64 num_events, room_events, num_occurred, first_occurred, room_occurred;
    List step_messages; /* of the present step or delivery, in order */
    i64 output_tokens, first_tokens, prompt_tokens, finished, preempted, running;
    double running_integral, running_changed_s;
    i64 gaps[NUM_BUCKETS];
} Engine;

/* pools.c */
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

/* accounts.c */
void account_node(Node *node, double now);
void account_busy(Node *node, double now);
void account_running(Engine *e);

/* links.c */
i32 lane_of(const Engine *e, i32 item);
void add_to_message(Engine *e, i32 item, i32 link, i32 lane, double size);
void send_messages(Engine *e);
void enqueue(Engine *e, i32 message);
void link_due(Engine *e, i32 link, i32 version);
void account_link(Link *link, double now);

/* nodes.c */
void step_done(Engine *e, i32 node);
void receive(Engine *e, i32 message);

#endif
