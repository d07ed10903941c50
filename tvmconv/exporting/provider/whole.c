/* Runs a whole network as one node of onnxruntime's. */
#include "tvmconv-plan.h"
#include "tvmconv-raised.h"
#include "tvmconv-whole.h"

#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

/* Of a network's library (tvmconv/relax/native/network.c, tvmconv/lowering/native/launcher.c); a provider may have none. */
typedef int network_function(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result);
#pragma weak __tvm_ffi_tvmconv_network_open
#pragma weak __tvm_ffi_tvmconv_network_close
#pragma weak __tvm_ffi_tvmconv_network_with_threads
network_function __tvm_ffi_tvmconv_network_open, __tvm_ffi_tvmconv_network_close, __tvm_ffi_tvmconv_network_with_threads;

static const struct network *const own = &tvmconv_name_rt_network;

struct whole {
  int64_t network; /* its handle */
  int threads;
  size_t *places; /* of each input and output among the node's */
};

/* Whether a value has a tensor's type and shape. */
static int is_like(const struct tensor *tensor, const ort_value_info *value) {
  int64_t dims[tensor->rank + 1];
  int type = 0, rank = shape_of(value, &type, dims, tensor->rank);
  return rank == tensor->rank && type == tensor->type && memcmp(dims, tensor->dims, (size_t)rank * sizeof *dims) == 0;
}

static const struct tensor *input_named(const char *name) {
  for (int i = 0; i < own->input_count; ++i)
    if (strcmp(own->tensors[i].name, name) == 0) return &own->tensors[i];
  return NULL;
}

const char *unlike(const struct graph *graph) {
  int outputs = 0;
  for (size_t i = 0; i < graph->count; ++i) {
    const struct node *node = &graph->nodes[i];
    for (size_t k = 0; k < node->input_count; ++k) {
      const ort_value_info *value = node->inputs[k];
      if (name_of(value)[0] == '\0' || writer_of(graph, name_of(value)) >= 0 || fixed_data(value) != NULL) continue;
      const struct tensor *input = input_named(name_of(value));
      if (input == NULL || !is_like(input, value)) return "the graph reads an input that the network has not";
    }
    for (size_t k = 0; k < node->output_count; ++k) {
      bool given = false;
      if (name_of(node->outputs[k])[0] == '\0' || !good(ort.is_graph_output(node->outputs[k], &given)) || !given) continue;
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
    if (readers_of(graph, own->tensors[i].name, &first) == 0) return "the network has an input that the graph does not read";
  }
  return outputs == own->output_count ? NULL : "the network has an output that no node of the graph computes";
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

static ort_status *find_all_places(const ort_node *fused, size_t *places) {
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

ort_status *make_whole(int threads, const ort_node *fused, struct whole **result) {
  struct whole *made = calloc(1, sizeof *made);
  if (made != NULL) made->places = calloc((size_t)(own->input_count + own->output_count) + 1, sizeof *made->places);
  if (made == NULL || made->places == NULL) {
    free(made);
    return fail(ORT_FAIL, "out of memory");
  }
  made->threads = threads;
  ort_status *status = find_all_places(fused, made->places);
  TVMFFIAny handle = {.type_index = kTVMFFINone};
  if (status == NULL && __tvm_ffi_tvmconv_network_open(NULL, NULL, 0, &handle) != 0)
    status = fail(ORT_EP_FAIL, "%s", tvmconv_raised());
  made->network = handle.v_int64;
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
  TVMFFIAny handle = {.type_index = kTVMFFIInt, .v_int64 = whole->network}, none = {.type_index = kTVMFFINone};
  __tvm_ffi_tvmconv_network_close(NULL, &handle, 1, &none);
  free(whole->places);
  free(whole);
}

ort_status *run_whole(const struct whole *whole, ort_context *context) {
  const int inputs = own->input_count, all = inputs + own->output_count;
  TVMFFIAny arguments[all + 3];
  memset(arguments, 0, sizeof arguments);
  for (int i = 0; i < all + 3; ++i) arguments[i].type_index = kTVMFFIInt;
  arguments[0].v_int64 = whole->threads;
  arguments[1].v_int64 = whole->network;
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
  int failed = __tvm_ffi_tvmconv_network_with_threads(NULL, arguments, all + 3, &result);
  tvmconv_name_rt_by(NULL);
  return failed ? fail(ORT_EP_FAIL, "%s", tvmconv_raised()) : NULL;
}
