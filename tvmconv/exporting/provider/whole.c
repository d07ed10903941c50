/* Calls of networks, each as one node of onnxruntime's graph. */
#include <stdlib.h>
#include <string.h>

#include "tvmconv-call.h"
#include "tvmconv-extents.h"
#include "tvmconv-raised.h"
#include "tvmconv-whole.h"

struct whole {
  const struct network *network;
  int64_t handle;
  int threads;
  const ort_memory *memory;
  size_t *places; /* index of each input and output among the node's */
};

/* Finds the indices of tensors among a node's values, by name. */
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

/* Returns whether a network computes one of a node's outputs. */
static int gives(const struct network *own, const ort_value_info *const *outputs, size_t count) {
  for (size_t i = 0; i < count; ++i)
    for (int k = 0; k < own->output_count; ++k)
      if (strcmp(name_of(outputs[i]), own->tensors[own->input_count + k].name) == 0) return 1;
  return 0;
}

/* Finds the network that computes a node's outputs. */
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

/* Sets the extents that an input's shape determines; unknown ones are -1. */
static ort_status *set_extents(const struct network *own, const struct tensor *tensor, const int64_t *shape, int64_t *extents) {
  for (int axis = 0; axis < tensor->rank; ++axis) {
    const int64_t number = -1 - tensor->dims[axis];
    if (number < 0) continue;
    const struct extent *each = &own->extents[number];
    char text[300];
    if (!takes_extent(each->name, each->least, each->greatest, each->multiple, shape[axis], text, sizeof text))
      return fail(ORT_INVALID_ARGUMENT, "%s", text);
    if (extents[number] >= 0 && extents[number] != shape[axis])
      return fail(ORT_INVALID_ARGUMENT, "extent %d of %s is %lld and another %lld, both %s, which is one extent: pad the smaller", axis,
                  tensor->name, (long long)shape[axis], (long long)extents[number], each->name);
    extents[number] = shape[axis];
  }
  return NULL;
}

/* Computes the outputs' consecutive shapes and the arena's bytes for some extents, and these divided by their multiples. */
static ort_status *measure(const struct whole *whole, const int64_t *extents, TVMFFIAny *divided, int64_t *shapes, int axes, size_t *arena) {
  const struct network *own = whole->network;
  const int count = own->extent_count;
  TVMFFIAny arguments[count + 4], result = {.type_index = kTVMFFINone};
  memset(arguments, 0, sizeof arguments);
  for (int i = 0; i < count + 4; ++i) arguments[i].type_index = kTVMFFIInt;
  arguments[0].v_int64 = whole->handle;
  for (int i = 0; i < count; ++i) arguments[2 + i].v_int64 = divided[i].v_int64 = extents[i] / own->extents[i].multiple;
  arguments[2 + count].v_int64 = (int64_t)(uintptr_t)shapes;
  arguments[3 + count].v_int64 = axes;
  if (own->measure(NULL, arguments, count + 4, &result) != 0) return fail(ORT_INVALID_ARGUMENT, "%s", tvmconv_raised());
  *arena = (size_t)result.v_int64;
  return NULL;
}

/* Runs a network in a block of the session's arena; its address becomes the last argument. */
static ort_status *run_in(const struct whole *whole, ort_context *context, size_t arena, TVMFFIAny *arguments, int count) {
  struct block block;
  ort_status *status = take_block(context, whole->memory, arena, &block);
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
  const int inputs = own->input_count, all = inputs + own->output_count, count = 3 + own->extent_count + all + 1;
  int axes = 0, most = 0; /* of all outputs, and of one tensor */
  for (int i = 0; i < all; ++i) {
    axes += i < inputs ? 0 : own->tensors[i].rank;
    most = own->tensors[i].rank > most ? own->tensors[i].rank : most;
  }
  TVMFFIAny arguments[count], *ends = arguments + 3 + own->extent_count;
  int64_t extents[own->extent_count + 1], shapes[axes + 1], found[most + 1];
  memset(arguments, 0, sizeof arguments);
  for (int i = 0; i < own->extent_count; ++i) extents[i] = -1;
  for (int i = 0; i < count; ++i) arguments[i].type_index = kTVMFFIInt;
  arguments[0].v_int64 = whole->threads;
  arguments[1].v_int64 = whole->handle;
  ort_status *status = NULL;
  void *data = NULL;
  for (int i = 0; i < inputs && status == NULL; ++i) {
    const struct tensor *tensor = &own->tensors[i];
    status = read_input(context, whole->places[i], tensor->rank, tensor->dims, tensor->name, &data, found);
    if (status == NULL) status = set_extents(own, tensor, found, extents);
    ends[i].v_int64 = (int64_t)(uintptr_t)data;
  }
  size_t arena = own->arena;
  if (status == NULL && own->extent_count > 0) status = measure(whole, extents, arguments + 3, shapes, axes, &arena);
  const int64_t *next = shapes;
  for (int i = inputs; i < all && status == NULL; ++i) {
    const struct tensor *tensor = &own->tensors[i];
    status = write_output(context, whole->places[i], tensor->rank, own->extent_count > 0 ? next : tensor->dims, &data);
    next += tensor->rank;
    ends[i].v_int64 = (int64_t)(uintptr_t)data;
  }
  return status != NULL ? status : run_in(whole, context, arena, arguments, count);
}
