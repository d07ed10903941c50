/* Runs networks, each as one node of onnxruntime's. */
#include <stdlib.h>
#include <string.h>

#include "tvmconv-call.h"
#include "tvmconv-raised.h"
#include "tvmconv-whole.h"

struct whole {
  const struct network *network;
  int64_t handle;
  int threads;
  const ort_memory *memory;
  size_t *places; /* of each input and output among the node's */
};

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

/* Returns whether a network gives one of a node's outputs. */
static int gives(const struct network *own, const ort_value_info *const *outputs, size_t count) {
  for (size_t i = 0; i < count; ++i)
    for (int k = 0; k < own->output_count; ++k)
      if (strcmp(name_of(outputs[i]), own->tensors[own->input_count + k].name) == 0) return 1;
  return 0;
}

/* Finds the network that gives a node's outputs. */
static ort_status *find_network(const struct network *const *networks, int count, const ort_node *fused, const struct network **own) {
  size_t output_count = 0;
  const ort_value_info **outputs = values_of(fused, ort.output_count, ort.outputs, &output_count);
  if (outputs == NULL) return fail(ORT_FAIL, "out of memory");
  int number = 0;
  while (number < count && !gives(networks[number], outputs, output_count)) ++number;
  free(outputs);
  if (number == count) return fail(ORT_EP_FAIL, "onnxruntime has made a node of no network");
  *own = networks[number];
  return NULL;
}

ort_status *make_whole(const struct network *const *networks, int count, int threads, const ort_memory *memory, const ort_node *fused,
                       struct whole **result) {
  const struct network *own = NULL;
  ort_status *status = find_network(networks, count, fused, &own);
  if (status != NULL) return status;
  struct whole *made = calloc(1, sizeof *made);
  if (made != NULL) made->places = calloc((size_t)(own->input_count + own->output_count) + 1, sizeof *made->places);
  if (made == NULL || made->places == NULL) {
    free(made);
    return fail(ORT_FAIL, "out of memory");
  }
  made->network = own;
  made->threads = threads;
  made->memory = memory;
  status = find_all_places(own, fused, made->places);
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

/* Runs a network in a block of the session's arena, whose address is the last of the arguments. */
static ort_status *run_in(const struct whole *whole, ort_context *context, TVMFFIAny *arguments, int count) {
  struct block block;
  ort_status *status = take_block(context, whole->memory, whole->network->arena, &block);
  if (status == NULL) {
    TVMFFIAny result = {.type_index = kTVMFFINone};
    arguments[count - 1].v_int64 = (int64_t)(uintptr_t)block.begin;
    tvmconv_name_rt_by(context);
    const int failed = whole->network->run(NULL, arguments, count, &result);
    tvmconv_name_rt_by(NULL);
    if (failed) status = fail(ORT_EP_FAIL, "%s", tvmconv_raised());
  }
  return give_block(&block, status);
}

ort_status *run_whole(const struct whole *whole, ort_context *context) {
  const struct network *own = whole->network;
  const int inputs = own->input_count, all = inputs + own->output_count;
  TVMFFIAny arguments[all + 4];
  memset(arguments, 0, sizeof arguments);
  for (int i = 0; i < all + 4; ++i) arguments[i].type_index = kTVMFFIInt;
  arguments[0].v_int64 = whole->threads;
  arguments[1].v_int64 = whole->handle;
  ort_status *status = NULL;
  for (int i = 0; i < all && status == NULL; ++i) {
    const struct tensor *tensor = &own->tensors[i];
    void *data = NULL;
    if (i < inputs)
      status = read_input(context, whole->places[i], tensor->rank, tensor->dims, tensor->name, &data);
    else
      status = write_output(context, whole->places[i], tensor->rank, tensor->dims, &data);
    arguments[3 + i].v_int64 = (int64_t)(uintptr_t)data;
  }
  return status != NULL ? status : run_in(whole, context, arguments, all + 4);
}
