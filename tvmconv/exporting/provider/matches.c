/* The matches of a graph: convolutions with their epilogues that the library has kernels for. */
#include <stdlib.h>

#include "tvmconv-graph.h"

static void mark(struct graph *graph, const struct match *match, int taken) {
  for (int i = 0; i < match->node_count; ++i) graph->nodes[match->nodes[i]].taken = taken;
}

/* Finds the longest match of a convolution, and marks its nodes as taken. */
static void take_match(struct graph *graph, size_t convolution, struct match *match) {
  find_match(graph, convolution, match);
  if (match->kernel != NULL && match->problem.batch < 1) {
    match->kernel = NULL;
    match->reason = "it has no image";
  }
  if (match->kernel != NULL) mark(graph, match, 1);
}

/* An Add of two convolutions can be fused with either. If this one has a kernel only with it, the other gives it up. */
static int exchange_sum(struct graph *graph, struct match *matches, size_t count, size_t convolution, struct match *match) {
  const struct use *reader;
  if (readers_of(graph, name_of(graph->nodes[convolution].outputs[0]), &reader) != 1) return 0;
  for (size_t i = 0; i < count; ++i) {
    struct match *other = &matches[i], before = *other;
    int has = 0;
    for (int k = 1; k < other->node_count; ++k) has |= other->nodes[k] == reader->node;
    if (!has) continue;
    mark(graph, &before, 0);
    graph->nodes[reader->node].taken = 1;
    take_match(graph, before.nodes[0], other);
    graph->nodes[reader->node].taken = 0;
    if (other->kernel != NULL) take_match(graph, convolution, match);
    if (other->kernel != NULL && match->kernel != NULL) return 1;
    if (other->kernel != NULL) mark(graph, other, 0);
    *other = before;
    mark(graph, other, 1);
  }
  return 0;
}

/* Goes backwards: an Add is fused with the later of two convolutions, and its residual is computed before that. */
int find_matches(struct graph *graph, struct matches *found) {
  *found = (struct matches){.list = calloc(graph->count + 1, sizeof *found->list)};
  if (found->list == NULL) return 0;
  for (size_t i = graph->count; i-- > 0;) {
    if (!is_convolution(&graph->nodes[i])) continue;
    take_match(graph, i, &found->list[found->count]);
    found->count += found->list[found->count].kernel != NULL;
  }
  for (size_t i = graph->count; i-- > 0;) {
    struct match *match = &found->list[found->count];
    if (!is_convolution(&graph->nodes[i])) continue;
    ++found->convolutions;
    if (graph->nodes[i].taken) continue;
    take_match(graph, i, match);
    if (match->kernel != NULL || exchange_sum(graph, found->list, found->count, i, match)) {
      ++found->count;
      continue;
    }
    ++found->missing;
    found->first_missing = i;
    found->reason = match->reason;
    found->theirs += operations(&match->problem);
  }
  for (size_t i = 0; i < found->count; ++i) found->ours += operations(&found->list[i].problem);
  return 1;
}
