/* What is counted over time, brought up to the present before it changes. */

#include "engine.h"

void account_node(Node *node, double now) {
    double passed = now - node->changed_s;
    node->resident_integral += (double)node->resident * passed;
    node->held_integral += (double)node->held * passed;
    node->waiting_integral += (double)node->waiting * passed;
    node->changed_s = now;
}

void account_busy(Node *node, double now) {
    if (!node->busy) return;
    node->busy_s += now - node->busy_since;
    node->busy_since = now;
}

void account_running(Engine *e) {
    e->running_integral += (double)e->running * (e->now - e->running_changed_s);
    e->running_changed_s = e->now;
}
