/* The parts that a graph is cut into, and which of them are claimed together. */
#include "tvmconv-plan.h"

#include <stdlib.h>
#include <string.h>

int read_extent(const ort_value_info *value, struct extent *extent) {
  memset(extent, 0, sizeof *extent);
  extent->rank = shape_of(value, &extent->type, extent->dims, AXES + 2);
  if (extent->rank < 2 || !is_floating(extent->type)) return 0;
  extent->pixels = 1;
  for (int i = 0; i < extent->rank; ++i) {
    if (extent->dims[i] < 1) return 0;
    if (i > 1) extent->pixels *= extent->dims[i];
  }
  extent->batch = extent->dims[0];
  extent->channels = extent->dims[1];
  return 1;
}

int same_extent(const struct extent *a, const struct extent *b) {
  return a->type == b->type && a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

static void take_nodes(struct graph *graph, const struct unit *unit) {
  for (int i = 0; i < unit->node_count; ++i) graph->nodes[unit->nodes[i]].taken = 1;
}

/* A filter or bias that is not fixed comes from outside of the graph: what our operations compute has its channels last. */
static int takes_as_given(const struct graph *graph, const struct match *match) {
  for (int i = FILTER; i <= BIAS; ++i)
    if (match->operands[i] != NULL && fixed_data(match->operands[i]) == NULL && writer_of(graph, name_of(match->operands[i])) >= 0)
      return 0;
  return 1;
}

/* The longest match of a convolution whose kernel may be called; what it takes is taken. */
static void take_match(struct graph *graph, enum layout layout, size_t convolution, struct match *match) {
  find_match(graph, convolution, layout, match);
  if (match->kernel != NULL && match->problem.batch < 1) {
    match->kernel = NULL;
    match->reason = "it has no image";
  }
  if (match->kernel != NULL && layout == CHANNELS_LAST && !takes_as_given(graph, match)) {
    match->kernel = NULL;
    match->reason = "its filter is computed by the model";
  }
  for (int i = 0; i < match->node_count && match->kernel != NULL; ++i) graph->nodes[match->nodes[i]].taken = 1;
}

static void give_back(struct graph *graph, const struct match *match) {
  for (int i = 0; i < match->node_count; ++i) graph->nodes[match->nodes[i]].taken = 0;
}

/* A sum of what two convolutions compute belongs to either. The one without a kernel may have one with the sum. */
static int exchange_sum(struct graph *graph, enum layout layout, struct match *matches, size_t count, size_t convolution, struct match *match) {
  const struct use *reader;
  if (readers_of(graph, name_of(graph->nodes[convolution].outputs[0]), &reader) != 1) return 0;
  for (size_t i = 0; i < count; ++i) {
    struct match *other = &matches[i], before = *other;
    int has = 0;
    for (int k = 1; k < other->node_count; ++k) has |= other->nodes[k] == reader->node;
    if (!has) continue;
    give_back(graph, &before);
    graph->nodes[reader->node].taken = 1;
    take_match(graph, layout, before.nodes[0], other);
    graph->nodes[reader->node].taken = 0;
    if (other->kernel != NULL) take_match(graph, layout, convolution, match);
    if (other->kernel != NULL && match->kernel != NULL) return 1;
    if (other->kernel != NULL) give_back(graph, other);
    *other = before;
    for (int k = 0; k < other->node_count; ++k) graph->nodes[other->nodes[k]].taken = 1;
  }
  return 0;
}

/* Reads kernels, the last first: operands added to a convolution are then there already. */
static void read_kernels(struct graph *graph, enum layout layout, struct units *units) {
  size_t found = 0;
  for (size_t i = graph->count; i-- > 0;) {
    if (!is_convolution(&graph->nodes[i])) continue;
    take_match(graph, layout, i, &units->matches[found]);
    found += units->matches[found].kernel != NULL;
  }
  for (size_t i = graph->count; i-- > 0;) {
    struct match *match = &units->matches[found];
    if (!is_convolution(&graph->nodes[i])) continue;
    ++units->convolutions;
    if (graph->nodes[i].taken) continue;
    take_match(graph, layout, i, match);
    if (match->kernel != NULL || exchange_sum(graph, layout, units->matches, found, i, match)) {
      ++found;
      continue;
    }
    ++units->missing;
    units->first_missing = i;
    units->reason = match->reason;
    units->theirs += operations(&match->problem);
  }
  for (size_t i = 0; i < found; ++i) {
    struct match *match = &units->matches[i];
    struct unit *unit = &units->list[units->count++];
    units->ours += operations(&match->problem);
    *unit = (struct unit){.kind = KERNEL, .match = match, .node_count = match->node_count, .output = match->output};
    memcpy(unit->nodes, match->nodes, (size_t)match->node_count * sizeof *unit->nodes);
  }
}

static int by_last_node(const void *a, const void *b) {
  const struct unit *x = a, *y = b;
  size_t i = x->nodes[x->node_count - 1], k = y->nodes[y->node_count - 1];
  return (i > k) - (i < k);
}

/* onnxruntime lists a node after those whose results it reads. */
static int is_in_order(const struct graph *graph) {
  for (size_t i = 0; i < graph->readers.count; ++i)
    if (writer_of(graph, graph->readers.list[i].name) >= (long)graph->readers.list[i].node) return 0;
  return 1;
}

int read_units(struct graph *graph, enum layout layout, struct units *units) {
  memset(units, 0, sizeof *units);
  units->list = calloc(graph->count + 1, sizeof *units->list);
  units->matches = calloc(graph->count + 1, sizeof *units->matches);
  units->of_node = calloc(graph->count + 1, sizeof *units->of_node);
  if (units->list == NULL || units->matches == NULL || units->of_node == NULL || !is_in_order(graph)) {
    free_units(units);
    return 0;
  }
  read_kernels(graph, layout, units);
  for (size_t i = 0; i < graph->count; ++i) {
    struct unit *unit = &units->list[units->count];
    if (graph->nodes[i].taken) continue;
    *unit = (struct unit){.kind = OTHER, .nodes = {i}, .node_count = 1};
    if (layout == CHANNELS_LAST && !read_move(graph, i, unit) && !read_window_unit(graph, i, unit) && !read_map(graph, i, unit))
      *unit = (struct unit){.kind = OTHER, .nodes = {i}, .node_count = 1};
    take_nodes(graph, unit);
    ++units->count;
  }
  qsort(units->list, units->count, sizeof *units->list, by_last_node);
  for (size_t i = 0; i < units->count; ++i)
    for (int k = 0; k < units->list[i].node_count; ++k) units->of_node[units->list[i].nodes[k]] = (int)i;
  return 1;
}

void free_units(struct units *units) {
  free(units->list);
  free(units->matches);
  free(units->of_node);
  memset(units, 0, sizeof *units);
}

/* Calls `with` for each tensor that a unit reads of another. */
static void each_source(const struct graph *graph, const struct units *units, size_t unit, void (*with)(struct units *, size_t, size_t)) {
  const struct unit *reader = &units->list[unit];
  for (int i = 0; i < reader->node_count; ++i) {
    const struct node *node = &graph->nodes[reader->nodes[i]];
    for (size_t k = 0; k < node->input_count + node->implicit_count; ++k) {
      long writer = writer_of(graph, name_of(k < node->input_count ? node->inputs[k] : node->implicit[k - node->input_count]));
      if (writer >= 0 && units->of_node[writer] != (int)unit) with((struct units *)(uintptr_t)units, unit, (size_t)units->of_node[writer]);
    }
  }
}

/* A level rises where the one that computes changes, so whatever lies between two units of one level is of that level, too. */
static void raise_level(struct units *units, size_t reader, size_t writer) {
  const struct unit *from = &units->list[writer];
  int level = from->level + ((from->kind == OTHER) != (units->list[reader].kind == OTHER));
  if (level > units->list[reader].level) units->list[reader].level = level;
}

static int root(struct units *units, int unit) {
  while (units->list[unit].group != unit) unit = units->list[unit].group;
  return unit;
}

static void connect(struct units *units, size_t reader, size_t writer) {
  struct unit *a = &units->list[reader], *b = &units->list[writer];
  if (a->kind == OTHER || b->kind == OTHER || a->level != b->level) return;
  int i = root(units, (int)reader), k = root(units, (int)writer);
  units->list[i > k ? i : k].group = i > k ? k : i;
}

int find_groups(const struct graph *graph, enum layout layout, struct units *units) {
  int count = 0, *numbers = calloc(units->count + 1, sizeof *numbers);
  if (numbers == NULL) return -1;
  for (size_t i = 0; i < units->count; ++i) {
    each_source(graph, units, i, raise_level);
    units->list[i].group = (int)i;
  }
  for (size_t i = 0; i < units->count && layout == CHANNELS_LAST; ++i) each_source(graph, units, i, connect);
  for (size_t i = 0; i < units->count; ++i) units->list[i].group = root(units, (int)i);
  /* A group is worth claiming if it has a kernel. */
  for (size_t i = 0; i < units->count; ++i)
    if (units->list[i].kind == KERNEL && numbers[units->list[i].group] == 0) numbers[units->list[i].group] = ++count;
  for (size_t i = 0; i < units->count; ++i) units->list[i].group = numbers[units->list[i].group] - 1;
  free(numbers);
  return count;
}
