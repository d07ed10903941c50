/* Search for the parts of a graph that the library has networks for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tvmconv-whole.h"

/* Returns whether a value has a tensor's type and shape, with the same free extents. */
static int is_like(const struct tensor *tensor, const ort_value_info *value) {
  int64_t dims[tensor->rank + 1];
  int type = 0, rank = shape_of(value, &type, dims, tensor->rank), same = rank == tensor->rank && type == tensor->type;
  for (int i = 0; same && i < rank; ++i) same = dims[i] < 0 ? tensor->dims[i] < 0 : dims[i] == tensor->dims[i];
  return same;
}

/* The same for an output, whose shape onnxruntime may not know where extents are free. */
static int gives_like(const struct network *own, const struct tensor *tensor, const ort_value_info *value) {
  int64_t dims[1];
  int type = 0;
  if (own->extent_count == 0) return is_like(tensor, value);
  shape_of(value, &type, dims, 0);
  return type == tensor->type;
}

static const struct tensor *input_named(const struct network *own, const char *name) {
  for (int i = 0; i < own->input_count; ++i)
    if (strcmp(own->tensors[i].name, name) == 0) return &own->tensors[i];
  return NULL;
}

static const struct tensor *output_at(const struct network *own, int number) { return &own->tensors[own->input_count + number]; }

/* Returns whether a value is an initializer that callers may override: it is an input of the graph, too (IR 4 and later). */
static int is_overridable(const ort_value_info *value) {
  const ort_value *tensor = NULL;
  return good(ort.initializer(value, &tensor)) && tensor != NULL;
}

static int is_within(const struct graph *graph, const unsigned char *part, const ort_value_info *value) {
  const long writer = writer_of(graph, name_of(value));
  return writer >= 0 && part[writer];
}

/* Returns whether a tensor that a part computes is read outside of it. */
static int leaves(const struct graph *graph, const unsigned char *part, const ort_value_info *value) {
  const struct use *first;
  bool given = false;
  if (good(ort.is_graph_output(value, &given)) && given) return 1;
  const size_t readers = readers_of(graph, name_of(value), &first);
  for (size_t i = 0; i < readers; ++i)
    if (!part[first[i].node]) return 1;
  return 0;
}

static const char *unlike_inputs(const struct network *own, const struct graph *graph, const unsigned char *part, const struct node *node) {
  for (size_t k = 0; k < node->input_count; ++k) {
    const ort_value_info *value = node->inputs[k];
    if (name_of(value)[0] == '\0' || is_within(graph, part, value) || is_constant_tensor(value)) continue;
    if (is_overridable(value)) return "a weight of the graph is an input, too, so callers may give another; take it from the graph's inputs";
    const struct tensor *input = input_named(own, name_of(value));
    if (input == NULL || !is_like(input, value)) return "the graph reads an input that the network has not";
  }
  return NULL;
}

/* Returns NULL, or why a network does not have the inputs and outputs of a part. */
static const char *unlike(const struct network *own, const struct graph *graph, const unsigned char *part) {
  int outputs = 0;
  for (size_t i = 0; i < graph->count; ++i) {
    const struct node *node = &graph->nodes[i];
    const char *why = part[i] ? unlike_inputs(own, graph, part, node) : NULL;
    if (why != NULL) return why;
    for (size_t k = 0; part[i] && k < node->output_count; ++k) {
      if (name_of(node->outputs[k])[0] == '\0' || !leaves(graph, part, node->outputs[k])) continue;
      ++outputs;
      int known = 0;
      for (int j = 0; j < own->output_count; ++j)
        known |= strcmp(output_at(own, j)->name, name_of(node->outputs[k])) == 0 && gives_like(own, output_at(own, j), node->outputs[k]);
      if (!known) return "the graph has an output that the network has not";
    }
  }
  for (int i = 0; i < own->input_count; ++i) {
    const struct use *first;
    size_t readers = readers_of(graph, own->tensors[i].name, &first);
    while (readers > 0 && !part[first[readers - 1].node]) --readers;
    if (readers == 0) return "the network has an input that the graph does not read";
  }
  return outputs == own->output_count ? NULL : "the network has an output that no node of the graph computes";
}

static int mark(const struct network *ends, const struct graph *graph, const char *name, unsigned char *part) {
  const long writer = input_named(ends, name) == NULL ? writer_of(graph, name) : -1;
  if (writer >= 0) part[writer] = 1;
  return writer >= 0;
}

ort_status *part_of(const struct network *ends, const struct graph *graph, unsigned char *part, uint64_t *identity) {
  memset(part, 0, graph->count);
  *identity = 0;
  for (int i = 0; i < ends->output_count; ++i)
    if (!mark(ends, graph, output_at(ends, i)->name, part)) return NULL;
  for (size_t i = graph->count; i-- > 0;) {
    const struct node *node = &graph->nodes[i];
    for (size_t k = 0; part[i] && k < node->input_count; ++k) mark(ends, graph, name_of(node->inputs[k]), part);
    for (size_t k = 0; part[i] && k < node->implicit_count; ++k) mark(ends, graph, name_of(node->implicit[k]), part);
  }
  return identity_of(graph, part, identity);
}

static int have_same_ends(const struct network *a, const struct network *b) {
  int same = a->input_count == b->input_count && a->output_count == b->output_count;
  for (int i = 0; same && i < a->input_count + a->output_count; ++i) same = strcmp(a->tensors[i].name, b->tensors[i].name) == 0;
  return same;
}

/* Returns whether a node reads an output of a marked node. */
static int reads(const struct graph *graph, const struct node *node, const unsigned char *marked) {
  for (size_t k = 0; k < node->input_count; ++k)
    if (is_within(graph, marked, node->inputs[k])) return 1;
  for (size_t k = 0; k < node->implicit_count; ++k)
    if (is_within(graph, marked, node->implicit[k])) return 1;
  return 0;
}

static const char NO_MEMORY[] = "out of memory";

/* Returns NULL if fusing a part creates no cycle, with each part found earlier as one node; else why it would. */
static const char *unclosed(const struct graph *graph, const unsigned char *part, const int *owners, int count) {
  unsigned char *after = calloc(graph->count + (size_t)count + 2, 1);
  if (after == NULL) return NO_MEMORY;
  unsigned char *group_after = after + graph->count;
  for (int changed = 1; changed;) {
    changed = 0;
    for (size_t i = 0; i < graph->count; ++i) {
      if (part[i] || after[i]) continue;
      const int group = owners[i];
      after[i] = (group > 0 && group_after[group]) || reads(graph, &graph->nodes[i], part) || reads(graph, &graph->nodes[i], after);
      changed |= after[i];
      if (group > 0) group_after[group] |= after[i];
    }
  }
  int closed = 1;
  for (size_t i = 0; closed && i < graph->count; ++i) closed = !part[i] || !reads(graph, &graph->nodes[i], after);
  free(after);
  return closed ? NULL : "what it reads depends on what it computes";
}

int is_list(const char *text) {
  const char *at = text;
  while (*at >= '0' && *at <= '9') {
    char *end;
    errno = 0;
    strtoull(at, &end, 10);
    if (errno != 0) return 0; /* more than 64 bits */
    if (*end == '\0') return 1;
    at = *end == ',' ? end + 1 : "?";
  }
  return *text == '\0';
}

/* Returns whether a list, NULL for all or numbers separated by commas, has an identity. */
static int is_listed(const char *list, uint64_t identity) {
  while (list != NULL && *list != '\0') {
    char *end;
    if (strtoull(list, &end, 10) == identity) return 1;
    list = *end == ',' ? end + 1 : "";
  }
  return list == NULL;
}

static const char *unfit(const struct network *own, const struct graph *graph, const unsigned char *part, const int *owners, int count) {
  if (!tvmconv_name_rt_runs(own->target)) return "its networks are for other CPUs; export it again with --target for this one";
  for (size_t i = 0; i < graph->count; ++i)
    if (part[i] && owners[i] > 0) return "another network has nodes of it";
  const char *why = unclosed(graph, part, owners, count);
  return why != NULL ? why : unlike(own, graph, part);
}

ort_status *find_networks(const struct graph *graph, const char *list, struct parts *found, int *owners) {
  const int count = tvmconv_name_rt_network_count;
  unsigned char *part = calloc(graph->count + 1, 1);
  ort_status *status = part != NULL ? NULL : fail(ORT_FAIL, NO_MEMORY);
  memset(owners, 0, graph->count * sizeof *owners);
  memset(found->reasons, 0, (size_t)count * sizeof *found->reasons);
  found->count = 0;
  found->why = count == 0 ? "the library has no network" : "its networks are of other models, or of other weights or shapes, or were exported with another onnxruntime";
  uint64_t identity = 0;
  for (int i = 0; status == NULL && i < count; ++i) {
    const struct network *each = &tvmconv_name_rt_networks[i];
    if (!is_listed(list, each->graph)) continue;
    if (i == 0 || !have_same_ends(each, each - 1) || !is_listed(list, each[-1].graph)) status = part_of(each, graph, part, &identity);
    if (status != NULL || identity != each->graph) continue;
    const char *why = found->reasons[i] = unfit(each, graph, part, owners, found->count);
    if (why == NO_MEMORY) status = fail(ORT_FAIL, NO_MEMORY);
    if (found->count == 0) found->why = why;
    if (why != NULL) continue;
    found->networks[found->count++] = each;
    for (size_t k = 0; k < graph->count; ++k)
      if (part[k]) owners[k] = found->count;
    identity = 0; /* further networks for the same part use fewer CPU features */
  }
  free(part);
  return status;
}

const struct network *missing_part(const struct graph *graph, const char *list, const struct parts *found, const int *owners, const char **why) {
  const struct network *missing = NULL;
  *why = NULL;
  for (int i = 0; i < tvmconv_name_rt_network_count && *why == NULL; ++i) {
    const struct network *each = &tvmconv_name_rt_networks[i];
    int there = is_listed(list, each->graph) && each->output_count > 0;
    for (int k = 0; there && k < each->input_count; ++k) {
      const struct use *first;
      there = readers_of(graph, each->tensors[k].name, &first) > 0;
    }
    for (int k = 0; there && k < each->output_count; ++k) {
      const long writer = writer_of(graph, output_at(each, k)->name);
      there = writer >= 0 && owners[writer] == 0;
    }
    if (!there || (missing != NULL && found->reasons[i] == NULL)) continue;
    missing = each;
    *why = found->reasons[i];
  }
  if (*why == NULL) *why = "its network is of another part, or of other weights or shapes";
  return missing;
}

int runs_networks(void) {
  for (int i = 0; i < tvmconv_name_rt_network_count; ++i)
    if (tvmconv_name_rt_runs(tvmconv_name_rt_networks[i].target)) return 1;
  return 0;
}
