/* A maximum flow by Dinic's algorithm: shortest augmenting paths, a phase for each length. Exact,
   because capacities are integers. */

#include "loops.h"

#include <stdlib.h>

typedef struct {
    i64 *starts, *heads, *rest, *twins; /* edges by tail; twins[e] is the edge back */
    i64 *levels, *current, *queue, *path;
    i64 num_vertices, source, sink;
} Network;

static int find_levels(Network *net)
{
    for (i64 v = 0; v < net->num_vertices; v++) net->levels[v] = -1;
    i64 first = 0, last = 0;
    net->levels[net->source] = 0;
    net->queue[last++] = net->source;
    while (first < last) {
        i64 v = net->queue[first++];
        for (i64 e = net->starts[v]; e < net->starts[v + 1]; e++) {
            i64 w = net->heads[e];
            if (net->rest[e] > 0 && net->levels[w] < 0) {
                net->levels[w] = net->levels[v] + 1;
                net->queue[last++] = w;
            }
        }
    }
    return net->levels[net->sink] >= 0;
}

/* One augmenting path along the levels, depth first; returns what it carries, 0 if there is none. */
static i64 push_one_path(Network *net)
{
    i64 depth = 0, v = net->source;
    while (v != net->sink) {
        i64 e = net->current[v];
        if (e == net->starts[v + 1]) {
            if (depth == 0) return 0;
            e = net->path[--depth];
            v = net->heads[net->twins[e]];
            net->current[v]++;
        } else if (net->rest[e] > 0 && net->levels[net->heads[e]] == net->levels[v] + 1) {
            net->path[depth++] = e;
            v = net->heads[e];
        } else {
            net->current[v]++;
        }
    }
    i64 push = net->rest[net->path[0]];
    for (i64 k = 1; k < depth; k++)
        if (net->rest[net->path[k]] < push) push = net->rest[net->path[k]];
    for (i64 k = 0; k < depth; k++) {
        net->rest[net->path[k]] -= push;
        net->rest[net->twins[net->path[k]]] += push;
    }
    return push;
}

/* Returns the value, or -1 without memory. Writes each edge's flow into `flows` (may be the array
   of capacities), and into `from_source` which vertices more flow could still reach. */
i64 maximum_flow(i64 num_vertices, i64 num_edges, const i64 *tails, const i64 *heads,
                 const i64 *capacities, i64 source, i64 sink, i64 *flows, i64 *from_source)
{
    i64 *memory = calloc((size_t)(7 * num_edges + 5 * num_vertices + 2), sizeof(i64));
    if (memory == NULL) return -1;
    Network net = {.num_vertices = num_vertices, .source = source, .sink = sink};
    net.heads = memory;
    net.rest = net.heads + 2 * num_edges;
    net.twins = net.rest + 2 * num_edges;
    i64 *place_of = net.twins + 2 * num_edges;
    net.starts = place_of + num_edges;
    net.levels = net.starts + num_vertices + 2;
    net.current = net.levels + num_vertices;
    net.queue = net.current + num_vertices;
    net.path = net.queue + num_vertices;
    for (i64 e = 0; e < num_edges; e++) {
        net.starts[tails[e] + 1]++;
        net.starts[heads[e] + 1]++;
    }
    for (i64 v = 0; v < num_vertices; v++) {
        net.starts[v + 1] += net.starts[v];
        net.current[v] = net.starts[v];
    }
    for (i64 e = 0; e < num_edges; e++) {
        i64 forth = net.current[tails[e]]++, back = net.current[heads[e]]++;
        net.heads[forth] = heads[e];
        net.rest[forth] = capacities[e];
        net.twins[forth] = back;
        net.heads[back] = tails[e];
        net.twins[back] = forth;
        place_of[e] = forth;
    }
    i64 value = 0;
    while (find_levels(&net)) {
        for (i64 v = 0; v < num_vertices; v++) net.current[v] = net.starts[v];
        for (i64 push = push_one_path(&net); push > 0; push = push_one_path(&net)) value += push;
    }
    for (i64 e = 0; e < num_edges; e++) flows[e] = net.rest[net.twins[place_of[e]]];
    for (i64 v = 0; v < num_vertices; v++) from_source[v] = net.levels[v] >= 0;
    free(memory);
    return value;
}
