/* The state of one simulation. python_engine.py one folder up is the same in Python, explains it, and
   gives the same numbers to the last bit. Change both together. */

#ifndef HELIXWEB_SIMULATOR_ENGINE_H
#define HELIXWEB_SIMULATOR_ENGINE_H

#include <stdint.h>

typedef int64_t i64;
typedef int32_t i32;

enum { STEP_DONE, LINK_DUE, ARRIVAL };                 /* kinds of events */
enum { FIRST_TOKEN = 1, FINISHED = 2, OUTGROWN = 3 };  /* kinds of occurrences */
enum { FIFO, DECODE_FIRST, TWO_LANES, JUST_IN_TIME };  /* transmission */

#define SUB_BUCKETS 64
#define LEAST_EXPONENT (-20)
#define BUCKETS (40 * SUB_BUCKETS)

typedef struct {
    double time;
    i64 order;
    i32 kind, subject, version;
} Event;

typedef struct {
    i32 request, stage, tokens; /* tokens: of the prompt, 0 for a decode */
    i32 ends_prompt, next;
} Item;

typedef struct {
    i32 first_item, last_item, link, next;
    double bytes;
} Message;

typedef struct {
    i32 node, segment, layers, link; /* link: by which requests come */
} Stage;

typedef struct {
    i64 prompt_tokens, output_tokens, produced, grow_at;
    double first_token_s, last_token_s;
    Stage *stages;
    i32 num_stages, room, link_home, next_free;
} Request;

typedef struct {
    i32 first, last;
} List;

typedef struct {
    i32 first_segment, num_segments, position; /* position: the segment run last or now */
    i32 busy, has_decodes, resident, waiting;
    i64 prompt_limit, decode_limit;
    const double *prompt_s, *decode_s;
    i64 prompt_size, decode_size;
    double prompt_slope, decode_slope;
    i64 copied_tokens;
    double busy_until, busy_since;
    List batch;
    /* statistics */
    double busy_s, resident_integral, kv_integral, waiting_integral, changed_s;
    i64 kv_used, kv_peak, steps, decode_steps, decodes, decodes_squared, prompt_tokens;
} Node;

typedef struct {
    i32 layers;
    List queue;
} Segment;

typedef struct {
    double bandwidth, latency;
    i32 source, target;
    List queue[2];     /* lane 0: decodes, or everything in one queue; lane 1: prompts */
    i32 active[2];     /* the message under way, -1 for none */
    double left[2];    /* its bytes left */
    double rate[2];
    double since;      /* when `left` was true */
    double piece;      /* bytes sent before the lanes are looked at again, 0 for all that are left */
    i32 due_lane, version, overtaken, waiting;
    /* statistics */
    double bytes, busy_s, waiting_integral, changed_s;
    i64 waiting_peak;
} Link;

typedef struct {
    i64 kind, request, tokens;
    double time_s, first_token_s;
} Occurrence;

typedef struct Simulation {
    double now, stats_since;
    i64 order, events_done;
    i32 failed; /* no memory */
    /* policy */
    i64 chunk_tokens, cap_floor, starvation_limit;
    double cap_divisor, lane_share, piece_bytes, overhead_s, copy_s_per_token;
    double activation_bytes, token_bytes;
    i32 grouped, transmission;
    /* parts */
    i32 num_nodes, num_segments, num_links, room_links, num_requests, room_requests, free_request;
    Node *nodes;
    Segment *segments;
    Link *links;
    Request *requests;
    i32 *open_message; /* by link and lane: the message that a step or delivery is filling */
    Item *items;
    i32 room_items, free_item;
    Message *messages;
    i32 room_messages, free_message;
    Event *heap;
    i64 num_events, room_events;
    Occurrence *occurred;
    i64 num_occurred, first_occurred, room_occurred;
    /* statistics of the whole */
    i64 output_tokens, first_tokens, prompt_tokens, finished, running;
    double running_integral, running_changed_s;
    i64 gaps[BUCKETS];
} Simulation;

/* pools.c */
void push_event(Simulation *s, double time, i32 kind, i32 subject, i32 version);
Event pop_event(Simulation *s);
i32 new_item(Simulation *s, i32 request, i32 stage, i32 tokens, i32 ends_prompt);
void free_item(Simulation *s, i32 item);
i32 new_message(Simulation *s, i32 link);
void free_message(Simulation *s, i32 message);
void occur(Simulation *s, i64 kind, i32 request);

/* links.c */
void send_item(Simulation *s, i32 item, i32 link, double bytes);
void close_messages(Simulation *s, i32 first_message);
i32 message_for(Simulation *s, i32 link, i32 lane, i32 *first, i32 *last);
void link_due(Simulation *s, i32 link, i32 version);
void links_account(Simulation *s);

/* nodes.c */
void step_done(Simulation *s, i32 node);
void receive(Simulation *s, i32 message);
void start_step(Simulation *s, i32 node);
void node_account(Simulation *s, Node *node);

#endif
