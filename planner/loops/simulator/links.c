/* Messages on links: lanes, pieces of prompts, and bandwidth that links share.

   Every link has two lanes (one under FIFO). Of a shared bandwidth every link that is sending has the
   same part, or what its own bandwidth lets it use of that, and the others more (processor sharing, as
   of streams that compete for a network card); what a link cannot use because another shared bandwidth
   holds it up is not given away. Paces change when a link begins to send or falls silent. */

#include "engine.h"

#include <math.h>

void account_link(Link *link, double now) {
    double passed = now - link->changed_s;
    if (link->active[DECODES] >= 0 || link->active[PROMPTS] >= 0) link->counted.busy_s += passed;
    link->counted.waiting_integral += (double)link->waiting * passed;
    link->changed_s = now;
}

i32 lane_of(const Engine *e, i32 item) {
    return e->policy.decodes_first && e->items[item].tokens ? PROMPTS : DECODES;
}

static void append(Engine *e, List *list, i32 message) {
    e->messages[message].next = -1;
    if (list->last >= 0)
        e->messages[list->last].next = message;
    else
        list->first = message;
    list->last = message;
}

/* Puts an item into the step's message for that link and lane, or into one of its own. */
void add_to_message(Engine *e, i32 item, i32 link, i32 lane, double size) {
    i32 number = e->policy.grouped ? e->links[link].open[lane] : -1;
    if (number < 0) {
        number = new_message(e, link, size);
        append(e, &e->step_messages, number);
        if (e->policy.grouped) e->links[link].open[lane] = number;
    } else {
        e->messages[number].size += size;
    }
    Message *message = &e->messages[number];
    append_item(e, &message->items, item);
    message->count++;
}

void send_messages(Engine *e) {
    i32 message = e->step_messages.first;
    e->step_messages = (List){-1, -1};
    while (message >= 0) {
        i32 following = e->messages[message].next;
        Link *link = &e->links[e->messages[message].link];
        link->open[DECODES] = link->open[PROMPTS] = -1;
        enqueue(e, message);
        message = following;
    }
}

static void due(Engine *e, i32 number, double time) {
    foresee(e, time, LINK_DUE, number, ++e->links[number].version);
}

static void load(Engine *e, Link *link, i32 lane) {
    i32 message = link->queue[lane].first;
    link->queue[lane].first = e->messages[message].next;
    if (link->queue[lane].first < 0) link->queue[lane].last = -1;
    link->waiting--;
    link->active[lane] = message;
    link->left[lane] = e->messages[message].size;
}

static void divide(const Engine *e, Share *of) {
    double level = 0.0;
    for (;;) {
        double left = of->bandwidth;
        i32 takers = 0;
        for (i64 i = 0; i < of->num_links; i++) {
            const Link *link = &e->links[of->links[i]];
            if (!link->is_sending) continue;
            if (link->bandwidth <= level)
                left -= link->bandwidth;
            else
                takers++;
        }
        double raised = takers ? left / takers : INFINITY;
        if (raised <= level || !takers) {
            of->level = raised > level ? raised : level;
            return;
        }
        level = raised;
    }
}

static double fair_pace(const Engine *e, const Link *link) {
    double pace = link->bandwidth;
    for (i32 i = 0; i < link->num_shares; i++)
        if (e->shares[link->shares[i]].level < pace) pace = e->shares[link->shares[i]].level;
    return pace;
}

static void set_pace(Engine *e, i32 number, double pace) {
    Link *link = &e->links[number];
    if (pace == link->pace) return;
    link->sent += (e->now - link->since) * link->pace;
    link->since = e->now;
    link->pace = pace;
    double left = (link->piece > 0 ? link->piece : link->left[link->due_lane]) - link->sent;
    due(e, number, e->now + (left > 0.0 ? left : 0.0) / pace);
}

static void occupy(Engine *e, i32 number, int is_sending) {
    Link *link = &e->links[number];
    if (link->is_sending == is_sending) return;
    link->is_sending = is_sending;
    for (i32 i = 0; i < link->num_shares; i++) divide(e, &e->shares[link->shares[i]]);
    link->pace = fair_pace(e, link);
    for (i32 i = 0; i < link->num_shares; i++) {
        const Share *used = &e->shares[link->shares[i]];
        for (i64 j = 0; j < used->num_links; j++) {
            i32 other = used->links[j];
            if (other != number && e->links[other].is_sending)
                set_pace(e, other, fair_pace(e, &e->links[other]));
        }
    }
}

/* The idle link sends a message: of decodes first, else the rest of a prompt's or the next one. */
static void begin(Engine *e, i32 number) {
    Link *link = &e->links[number];
    i32 lane = link->queue[DECODES].first >= 0 ? DECODES : PROMPTS;
    int sends = link->queue[lane].first >= 0 || link->active[lane] >= 0;
    occupy(e, number, sends);
    link->due_lane = sends ? lane : NO_LANE;
    if (!sends) return;
    if (link->active[lane] < 0) load(e, link, lane);
    link->piece = link->sent = 0.0;
    link->since = e->now;
    due(e, number, e->now + link->left[lane] / link->pace);
}

static void interrupt(Engine *e, i32 number) {
    Link *link = &e->links[number];
    if (link->piece > 0 || e->policy.piece_bytes <= 0) return;
    double passed = link->sent + (e->now - link->since) * link->pace;
    double piece = e->policy.piece_bytes * floor(passed / e->policy.piece_bytes + 1.0);
    if (piece < link->left[PROMPTS]) {
        link->piece = piece;
        due(e, number, link->since + (piece - link->sent) / link->pace);
    }
}

void enqueue(Engine *e, i32 message) {
    i32 number = e->messages[message].link;
    Link *link = &e->links[number];
    account_link(link, e->now);
    i32 lane = lane_of(e, e->messages[message].items.first);
    append(e, &link->queue[lane], message);
    link->waiting++;
    if (link->active[DECODES] < 0 && link->active[PROMPTS] < 0)
        begin(e, number);
    else if (lane == DECODES && link->due_lane == PROMPTS)
        interrupt(e, number);
    if (link->waiting > link->counted.waiting_peak) link->counted.waiting_peak = link->waiting;
}

void link_due(Engine *e, i32 number, i32 version) {
    Link *link = &e->links[number];
    if (version != link->version) return;
    account_link(link, e->now);
    i32 lane = link->due_lane;
    if (link->piece > 0) {
        link->left[lane] -= link->piece;
        begin(e, number);
        return;
    }
    i32 message = link->active[lane];
    link->active[lane] = -1;
    link->counted.bytes += e->messages[message].size;
    foresee(e, e->now + link->latency, ARRIVAL, message, 0);
    begin(e, number);
}
