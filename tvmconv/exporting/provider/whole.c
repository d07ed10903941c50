/* Finds the network of a graph, and runs it as one node of onnxruntime's. */
#include <stdlib.h>
#include <string.h>

#include "tvmconv-plan.h"
#include "tvmconv-raised.h"
#include "tvmconv-whole.h"

struct whole {
  const struct network *network;
  int64_t handle;
  int threads;
  size_t *places; /* of each input and output among the node's */
};

/* Whether a value has a tensor's type and shape. */
static int is_like(const struct tensor *tensor, const ort_value_info *value) {
  int64_t dims[tensor->rank + 1];
  int type = 0, rank = shape_of(value, &type, dims, tensor->rank);
  return rank == tensor->rank && type == tensor->type && memcmp(dims, tensor->dims, (size_t)rank * sizeof *dims) == 0;
}

static const struct tensor *input_named(const struct network *own, const char *name) {
  for (int i = 0; i < own->input_count; ++i)
    if (strcmp(own->tensors[i].name, name) == 0) return &own->tensors[i];
  return NULL;
}

/* A weight whose value callers may give, which is an input of the graph, too, in files of IR 4 and later. */
static int is_overridable(const ort_value_info *value) {
  const ort_value *tensor = NULL;
  return good(ort.initializer(value, &tensor)) && tensor != NULL;
}

/* Whether a tensor that a part computes is an output of it. */
static int leaves(const struct graph *graph, const unsigned char *part, const ort_value_info *value) {
  const struct use *first;
  bool given = false;
  if (good(ort.is_graph_output(value, &given)) && given) return 1;
  const size_t readers = readers_of(graph, name_of(value), &first);
  for (size_t i = 0; i < readers; ++i)
    if (!part[first[i].node]) return 1;
  return 0;
}

static const char *unlike_inputs(const struct network *own, const struct graph *graph, const struct node *node) {
  for (size_t k = 0; k < node->input_count; ++k) {
    const ort_value_info *value = node->inputs[k];
    if (name_of(value)[0] == '\0' || writer_of(graph, name_of(value)) >= 0 || fixed_data(value) != NULL) continue;
    if (is_overridable(value)) return "a weight of the graph is an input, too, so callers may give another; take it from the graph's inputs";
    const struct tensor *input = input_named(own, name_of(value));
    if (input == NULL || !is_like(input, value)) return "the graph reads an input that the network has not";
  }
  return NULL;
}

/* NULL, or why a network does not have the inputs and outputs of a part. */
static const char *unlike(const struct network *own, const struct graph *graph, const unsigned char *part) {
  int outputs = 0;
  for (size_t i = 0; i < graph->count; ++i) {
    const struct node *node = &graph->nodes[i];
    const char *why = part[i] ? unlike_inputs(own, graph, node) : NULL;
    if (why != NULL) return why;
    for (size_t k = 0; part[i] && k < node->output_count; ++k) {
      if (name_of(node->outputs[k])[0] == '\0' || !leaves(graph, part, node->outputs[k])) continue;
      ++outputs;
      int known = 0;
      for (int j = 0; j < own->output_count; ++j) {
        const struct tensor *output = &own->tensors[own->input_count + j];
        known |= strcmp(output->name, name_of(node->outputs[k])) == 0 && is_like(output, node->outputs[k]);
      }
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

/* Sets the part that a network's outputs need; returns its identity, 0 if there is none. */
static uint64_t part_of(const struct network *own, const struct graph *graph, unsigned char *part) {
  memset(part, 0, graph->count);
  for (int i = 0; i < own->output_count; ++i)
    if (!mark_output(graph, own->tensors[own->input_count + i].name, part)) return 0;
  mark_needed(graph, part);
  return identity_of(graph, part);
}

static int have_same_outputs(const struct network *a, const struct network *b) {
  int same = a->output_count == b->output_count;
  for (int i = 0; same && i < a->output_count; ++i)
    same = strcmp(a->tensors[a->input_count + i].name, b->tensors[b->input_count + i].name) == 0;
  return same;
}

const struct network *find_network(const struct graph *graph, unsigned char *part, const char **why) {
  const int count = tvmconv_name_rt_network_count;
  *why = count == 0 ? "the library has no network" : "its networks are of other models, or of other weights or shapes, or were exported with another onnxruntime";
  uint64_t identity = 0;
  for (int i = 0; i < count; ++i) {
    const struct network *each = &tvmconv_name_rt_networks[i];
    if (i == 0 || !have_same_outputs(each, each - 1)) identity = part_of(each, graph, part);
    if (identity != each->graph) continue;
    *why = tvmconv_name_rt_runs(each->target) ? unlike(each, graph, part) : "its networks are for other CPUs; export it again with --target for this one";
    if (*why == NULL) return each;
  }
  return NULL;
}

int runs_networks(void) {
  for (int i = 0; i < tvmconv_name_rt_network_count; ++i)
    if (tvmconv_name_rt_runs(tvmconv_name_rt_networks[i].target)) return 1;
  return 0;
}

/* Finds the places of tensors among a node's values, by name. */
static ort_status *find_places(const struct tensor *tensors, int count, const ort_value_info **values, size_t value_count, size_t *places) {
  if (values == NULL) return fail(ORT_FAIL, "out of memory");
  for (int i = 0; i < count; ++i) {
    size_t place = 0;
    while (place < value_count && strcmp(name_of(values[place]), tensors[i].name) != 0) ++place;
    if (place == value_count) return fail(ORT_EP_FAIL, "onnxruntime's node of the network lacks '%s'", tensors[i].name);
    places[i] = place;
  }
  return NULL;
}

static ort_status *find_all_places(const struct network *own, const ort_node *fused, size_t *places) {
  size_t input_count = 0, output_count = 0;
  const ort_value_info **inputs = values_of(fused, ort.input_count, ort.inputs, &input_count);
  const ort_value_info **outputs = values_of(fused, ort.output_count, ort.outputs, &output_count);
  const int at = own->input_count;
  ort_status *status = find_places(own->tensors, at, inputs, input_count, places);
  if (status == NULL) status = find_places(own->tensors + at, own->output_count, outputs, output_count, places + at);
  free(inputs);
  free(outputs);
  return status;
}

ort_status *make_whole(const struct network *own, int threads, const ort_node *fused, struct whole **result) {
  struct whole *made = calloc(1, sizeof *made);
  if (made != NULL) made->places = calloc((size_t)(own->input_count + own->output_count) + 1, sizeof *made->places);
  if (made == NULL || made->places == NULL) {
    free(made);
    return fail(ORT_FAIL, "out of memory");
  }
  made->network = own;
  made->threads = threads;
  ort_status *status = find_all_places(own, fused, made->places);
  TVMFFIAny handle = {.type_index = kTVMFFINone};
  if (status == NULL && own->open(NULL, NULL, 0, &handle) != 0)
    status = fail(ORT_EP_FAIL, "%s", tvmconv_raised());
  made->handle = handle.v_int64;
  if (status == NULL) {
    *result = made;
  } else {
    free(made->places);
    free(made);
  }
  return status;
}

void free_whole(struct whole *whole) {
  if (whole == NULL) return;
  TVMFFIAny handle = {.type_index = kTVMFFIInt, .v_int64 = whole->handle}, none = {.type_index = kTVMFFINone};
  whole->network->close(NULL, &handle, 1, &none);
  free(whole->places);
  free(whole);
}

ort_status *run_whole(const struct whole *whole, ort_context *context) {
  const struct network *own = whole->network;
  const int inputs = own->input_count, all = inputs + own->output_count;
  TVMFFIAny arguments[all + 3];
  memset(arguments, 0, sizeof arguments);
  for (int i = 0; i < all + 3; ++i) arguments[i].type_index = kTVMFFIInt;
  arguments[0].v_int64 = whole->threads;
  arguments[1].v_int64 = whole->handle;
  ort_status *status = NULL;
  for (int i = 0; i < all && status == NULL; ++i) {
    const struct tensor *tensor = &own->tensors[i];
    ort_value *output = NULL;
    void *data = NULL;
    if (i < inputs) {
      status = read_input(context, whole->places[i], tensor->rank, tensor->dims, tensor->name, &data);
    } else {
      status = ort.context_output(context, whole->places[i], tensor->dims, (size_t)tensor->rank, &output);
      if (status == NULL) status = ort.tensor_data(output, &data);
    }
    arguments[3 + i].v_int64 = (int64_t)(uintptr_t)data;
  }
  if (status != NULL) return status;
  TVMFFIAny result = {.type_index = kTVMFFINone};
  tvmconv_name_rt_by(context);
  int failed = own->run(NULL, arguments, all + 3, &result);
  tvmconv_name_rt_by(NULL);
  return failed ? fail(ORT_EP_FAIL, "%s", tvmconv_raised()) : NULL;
}
