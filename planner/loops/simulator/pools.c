/* Events in order of time, and memory for what comes and goes. Indices, so that arrays may move. */

#include "engine.h"

#include <math.h>
#include <stdlib.h>

/* The array with room for one more than `count`; NULL without memory. */
void *grown(void *array, i64 *room, i64 count, size_t size) {
    if (count < *room) return array;
    i64 larger = *room ? 2 * *room : 64;
    array = realloc(array, (size_t)larger * size);
    if (array) *room = larger;
    return array;
}

static int earlier(const Event *a, const Event *b) {
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

void foresee(Engine *e, double time, i32 kind, i32 subject, i32 version) {
    Event *heap = grown(e->heap, &e->room_events, e->num_events, sizeof(Event));
    if (!heap) {
        e->failed = 1;
        return;
    }
    e->heap = heap;
    Event event = {time, ++e->order, kind, subject, version};
    i64 at = e->num_events++;
    while (at > 0) {
        i64 parent = (at - 1) / 4;
        if (!earlier(&event, &e->heap[parent])) break;
        e->heap[at] = e->heap[parent];
        at = parent;
    }
    e->heap[at] = event;
}

Event next_event(Engine *e) {
    Event first = e->heap[0], moved = e->heap[--e->num_events];
    i64 at = 0, count = e->num_events;
    for (;;) {
        i64 child = 4 * at + 1;
        if (child >= count) break;
        i64 least = child, end = child + 4 < count ? child + 4 : count;
        for (i64 other = child + 1; other < end; other++)
            if (earlier(&e->heap[other], &e->heap[least])) least = other;
        if (!earlier(&e->heap[least], &moved)) break;
        e->heap[at] = e->heap[least];
        at = least;
    }
    e->heap[at] = moved;
    return first;
}

/* Makes `count` more items and as many messages sure to be had: no message is without an item. */
int reserve_items(Engine *e, i64 count) {
    i64 free_count = 0;
    for (i32 item = e->free_item; item >= 0 && free_count < count; item = e->items[item].next)
        free_count++;
    if (free_count >= count) return 1;
    i64 room = 2 * (i64)e->room_items + count + 256;
    if (room > INT32_MAX) return 0;
    Item *items = realloc(e->items, (size_t)room * sizeof(Item));
    if (!items) return 0;
    e->items = items;
    Message *messages = realloc(e->messages, (size_t)room * sizeof(Message));
    if (!messages) return 0;
    e->messages = messages;
    for (i32 item = (i32)room - 1; item >= e->room_items; item--) {
        items[item].next = e->free_item;
        e->free_item = item;
    }
    for (i32 message = (i32)room - 1; message >= e->room_messages; message--) {
        messages[message].next = e->free_message;
        e->free_message = message;
    }
    e->room_items = e->room_messages = (i32)room;
    return 1;
}

i32 new_item(Engine *e, i32 request, i32 tokens, i32 ends_prompt) {
    i32 number = e->free_item;
    Item *item = &e->items[number];
    e->free_item = item->next;
    *item = (Item){0, request, e->requests[request].attempt, 0, tokens, -1, (int16_t)ends_prompt, 0};
    return number;
}

void drop_item(Engine *e, i32 item) {
    e->items[item].next = e->free_item;
    e->free_item = item;
}

i32 new_message(Engine *e, i32 link, double size) {
    i32 number = e->free_message;
    Message *message = &e->messages[number];
    e->free_message = message->next;
    *message = (Message){{-1, -1}, link, -1, 0, size};
    return number;
}

void drop_message(Engine *e, i32 message) {
    e->messages[message].next = e->free_message;
    e->free_message = message;
}

void occur(Engine *e, i64 kind, i32 number) {
    Occurrence *occurred = grown(e->occurred, &e->room_occurred, e->num_occurred, sizeof(Occurrence));
    if (!occurred) {
        e->failed = 1;
        return;
    }
    e->occurred = occurred;
    const Request *request = &e->requests[number];
    e->occurred[e->num_occurred++] =
        (Occurrence){kind, number, request->prompt_tokens + request->produced, e->now,
                     request->first_token_s};
}

i64 bucket_of(double seconds) {
    int exponent;
    if (seconds <= 0.0) return 0;
    double mantissa = frexp(seconds, &exponent);
    i64 position = ((i64)exponent - LEAST_EXPONENT) * SUB_BUCKETS;
    position += (i64)((mantissa - 0.5) * (2 * SUB_BUCKETS));
    if (position < 0) return 0;
    return position < NUM_BUCKETS ? position : NUM_BUCKETS - 1;
}
