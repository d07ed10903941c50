/* The executor of a network, linked into its library: it walks the plan with the threads of the kernels.
 *
 * host.h maps the weights. Calls from several threads are safe: each takes an instance, with an arena and the arrays of all steps.
 */
#include "sizes.h"

#include <stdlib.h>
#include <string.h>

#include "system.h"

#define EXPORT __attribute__((visibility("default")))

#include "host.h"

typedef struct Instance {
  struct Instance* next;
  unsigned char* arena; /* its own; NULL: callers provide one */
  uint64_t arena_bytes; /* of its own arena */
  unsigned char* base;  /* the arena of this call */
  Sizes kept[KEPT];
  Sizes* sizes; /* of this call */
  uint64_t calls;
  uint64_t* staged_bytes;
  unsigned char** staged; /* of each input and output that was not aligned to a cache line: a copy that is */
  unsigned char** places; /* of each input and output in this call */
  DLTensor* tensors;
  TVMFFIAny* arguments;
} Instance;

typedef struct {
  Instance* free;
  Weights weights;
  unsigned char *prepared_space, *prepared; /* the results of prepared steps; prepared is aligned within prepared_space */
  int32_t argument_count;
  uint64_t arena_limit; /* bytes of an arena that idle instances keep at most; 0: no limit */
} Network;

int tvmconv_copy(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)num_args, (void)result;
  const DLTensor *from = args[0].v_ptr, *to = args[1].v_ptr;
  uint64_t bytes = (from->dtype.bits * from->dtype.lanes + 7) / 8;
  for (int axis = 0; axis < from->ndim; ++axis) bytes *= (uint64_t)from->shape[axis];
  memcpy((char*)to->data + to->byte_offset, (const char*)from->data + from->byte_offset, bytes);
  return 0;
}

/* Sets an instance's sizes for a call's extents, if the plan has free ones; returns 0, or raises. */
static int set_extents(Instance* instance, const TVMFFIAny* extents) {
  if (tvmconv_plan.free == NULL) return 0;
  instance->sizes = sizes_of(instance->kept, extents, ++instance->calls);
  return instance->sizes != NULL ? 0 : -1;
}

static uint64_t end_bytes(const Instance* instance, int32_t end) {
  return tvmconv_plan.free ? instance->sizes->bytes[end] : tvmconv_plan.bytes[end];
}

static void free_instance(Instance* instance) {
  if (instance == NULL) return;
  if (instance->staged)
    for (int i = 0; i < tvmconv_plan.input_count + tvmconv_plan.output_count; ++i) free_aligned(instance->staged[i]);
  for (int each = 0; each < KEPT; ++each) free_sizes(&instance->kept[each]);
  free(instance->staged);
  free(instance->staged_bytes);
  free(instance->places);
  free(instance->tensors);
  free(instance->arguments);
  free_aligned(instance->arena);
  free(instance);
}

/* Returns an instance with the addresses of weights set; NULL: out of memory. */
static Instance* new_instance(const Network* network) {
  Instance* instance = calloc(1, sizeof *instance);
  if (instance == NULL) return NULL;
  const size_t ends = (size_t)(tvmconv_plan.input_count + tvmconv_plan.output_count) + 1;
  instance->staged = calloc(ends, sizeof *instance->staged);
  instance->staged_bytes = calloc(ends, sizeof *instance->staged_bytes);
  instance->places = calloc(ends, sizeof *instance->places);
  instance->tensors = calloc((size_t)network->argument_count + 1, sizeof *instance->tensors);
  instance->arguments = calloc((size_t)network->argument_count + 1, sizeof *instance->arguments);
  if (!instance->staged || !instance->staged_bytes || !instance->places || !instance->tensors || !instance->arguments) {
    free_instance(instance);
    return NULL;
  }
  int32_t at = 0;
  for (int32_t i = 0; i < tvmconv_plan.step_count; ++i)
    for (int32_t j = 0; j < tvmconv_plan.steps[i].count; ++j, ++at) {
      const Argument* argument = &tvmconv_plan.steps[i].arguments[j];
      DLTensor* tensor = &instance->tensors[at];
      if (argument->region == WEIGHTS) tensor->data = (void*)(network->weights.bytes + argument->offset);
      if (argument->region == PREPARED) tensor->data = network->prepared + argument->offset;
      tensor->device.device_type = kDLCPU;
      tensor->ndim = argument->rank;
      tensor->dtype = argument->dtype;
      tensor->shape = (int64_t*)argument->shape;
      instance->arguments[at].type_index = argument->region == NUMBER ? kTVMFFIInt : kTVMFFIDLTensorPtr;
      if (argument->region != NUMBER) instance->arguments[at].v_ptr = tensor;
    }
  return instance;
}

static void free_arena(Instance* instance) {
  free_aligned(instance->arena);
  instance->arena = NULL;
  instance->arena_bytes = 0;
}

/* Returns an instance's own arena, large enough for its sizes; NULL: out of memory. */
static unsigned char* own_arena(Instance* instance) {
  const uint64_t needed = tvmconv_plan.free ? instance->sizes->arena_bytes : tvmconv_plan.arena_bytes;
  const size_t bytes = (needed / HUGE_PAGE_BYTES + 1) * HUGE_PAGE_BYTES;
  if (bytes <= instance->arena_bytes) return instance->arena;
  free_arena(instance);
  if ((instance->arena = new_aligned(HUGE_PAGE_BYTES, bytes)) == NULL) return NULL;
  instance->arena_bytes = bytes;
  advise_huge(instance->arena, needed / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES); /* whole pages only */
  return instance->arena;
}

static Instance* take(Network* network) {
  lock();
  Instance* instance = network->free;
  if (instance != NULL) network->free = instance->next;
  unlock();
  return instance != NULL ? instance : new_instance(network);
}

static void give(Network* network, Instance* instance) {
  if (network->arena_limit && instance->arena_bytes > network->arena_limit) free_arena(instance);
  lock();
  instance->next = network->free;
  network->free = instance;
  unlock();
}

/* Sets the addresses of the steps' arrays in the arena, the inputs and the outputs; copies unaligned inputs to aligned memory. */
static int bind(Instance* instance, const TVMFFIAny* addresses, unsigned char* base) {
  int32_t inputs = tvmconv_plan.input_count, all = inputs + tvmconv_plan.output_count;
  unsigned char** places = instance->places;
  for (int32_t i = 0; i < all; ++i) {
    places[i] = (unsigned char*)(uintptr_t)addresses[i].v_int64;
    if ((uintptr_t)places[i] % LINE_BYTES == 0) continue;
    uint64_t bytes = end_bytes(instance, i), whole = (bytes / LINE_BYTES + 1) * LINE_BYTES;
    if (instance->staged_bytes[i] < whole) {
      free_aligned(instance->staged[i]);
      instance->staged[i] = new_aligned(LINE_BYTES, whole);
      instance->staged_bytes[i] = instance->staged[i] ? whole : 0;
    }
    if (instance->staged[i] == NULL) return no_memory();
    if (i < inputs) memcpy(instance->staged[i], places[i], bytes);
    places[i] = instance->staged[i];
  }
  instance->base = base;
  int32_t at = 0;
  for (int32_t i = 0; i < tvmconv_plan.step_count; ++i)
    for (int32_t j = 0; j < tvmconv_plan.steps[i].count; ++j, ++at) {
      const Argument* argument = &tvmconv_plan.steps[i].arguments[j];
      const Sizes* sizes = tvmconv_plan.free ? instance->sizes : NULL;
      if (argument->region == NUMBER) instance->arguments[at].v_int64 = sizes->measures[argument->at];
      if (sizes != NULL && argument->shape == NULL) instance->tensors[at].shape = sizes->measures + argument->at;
      if (argument->region == ARENA)
        instance->tensors[at].data = base + argument->offset + (sizes ? sizes->offsets[argument->number] : 0);
      if (argument->region > OUTPUT) continue;
      int32_t place = (int32_t)argument->number + (argument->region == OUTPUT ? inputs : 0);
      instance->tensors[at].data = places[place] + argument->offset;
    }
  return 0;
}

static int is_true(const TVMFFIAny* condition) {
  const DLTensor* tensor = condition->v_ptr;
  return ((const unsigned char*)tensor->data)[tensor->byte_offset] != 0;
}

/* The next step of a group. */
typedef struct {
  const Step* step;
  const TVMFFIAny* arguments;
} Next;

static int run_next(void* steps) {
  Next* next = steps;
  const Step* step = next->step++;
  const TVMFFIAny* arguments = next->arguments;
  next->arguments += step->count;
  TVMFFIAny result = {.type_index = kTVMFFINone};
  return step->function(NULL, arguments, step->count, &result);
}

/* Executes the plan; `seconds`, unless NULL, receives each step's time without groups, -1 for skipped steps. */
static int walk(const Instance* instance, double* seconds) {
  const TVMFFIAny* arguments = instance->arguments + tvmconv_plan.prepared_arguments;
  int status = 0;
  for (int32_t i = 0; seconds && i < tvmconv_plan.prepared_count; ++i) seconds[i] = -1;
  for (int32_t i = tvmconv_plan.prepared_count; status == 0 && i < tvmconv_plan.step_count; ++i) {
    const Step* step = &tvmconv_plan.steps[i];
    TVMFFIAny result = {.type_index = kTVMFFINone};
    double begun = seconds ? now() : 0;
    if (tvmconv_plan.free)
      tvmconv_lend(instance->base + instance->sizes->workspace, tvmconv_plan.free->workspace_bytes);
    else
      tvmconv_lend(instance->base + step->free, step->free_bytes);
    if (step->beside && !seconds) {
      Next next = {step, arguments};
      status = tvmconv_run_beside(1 + step->beside, run_next, &next);
      arguments = next.arguments;
      i += step->beside;
      continue;
    }
    const int32_t last = step->function != NULL || (step->count && is_true(arguments)) ? i : i + step->passed;
    if (step->function != NULL) status = step->function(NULL, arguments, step->count, &result);
    if (seconds) seconds[i] = now() - begun;
    arguments += step->count;
    while (i < last) {
      arguments += tvmconv_plan.steps[++i].count;
      if (seconds) seconds[i] = -1;
    }
  }
  tvmconv_lend(NULL, 0);
  return status == 0 ? 0 : -1;
}

/* `arena`: the caller's, aligned to a cache line; NULL: the instance's own. */
static int run(Network* network, double* seconds, const TVMFFIAny* extents, const TVMFFIAny* addresses, unsigned char* arena) {
  Instance* instance = take(network);
  if (instance == NULL) return no_memory();
  int status = set_extents(instance, extents);
  if (status == 0 && arena == NULL && (arena = own_arena(instance)) == NULL) status = no_memory();
  if (status == 0) status = bind(instance, addresses, arena);
  if (status == 0) status = walk(instance, seconds);
  int32_t inputs = tvmconv_plan.input_count;
  for (int32_t i = 0; status == 0 && i < tvmconv_plan.output_count; ++i) {
    void* out = (void*)(uintptr_t)addresses[inputs + i].v_int64;
    if ((uintptr_t)out % LINE_BYTES) memcpy(out, instance->staged[inputs + i], end_bytes(instance, inputs + i));
  }
  give(network, instance);
  return status;
}

static void close_network(Network* network) {
  for (Instance* each = network->free; each != NULL;) {
    Instance* next = each->next;
    free_instance(each);
    each = next;
  }
  free(network->prepared_space);
  unmap_weights(&network->weights);
  free(network);
}

/* Runs the steps that depend on weights alone. Their functions do not write gaps beyond an array, which must be zero. */
static int prepare(Network* network) {
  if (tvmconv_plan.prepared_count == 0) return 0;
  network->prepared_space = calloc(1, tvmconv_plan.prepared_bytes + HUGE_PAGE_BYTES); /* zeros, without writing the pages */
  if (network->prepared_space == NULL) return no_memory();
  const uintptr_t begin = (uintptr_t)network->prepared_space;
  network->prepared = network->prepared_space + (HUGE_PAGE_BYTES - begin % HUGE_PAGE_BYTES);
  advise_huge(network->prepared, tvmconv_plan.prepared_bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
  Instance* instance = take(network);
  if (instance == NULL) return no_memory();
  int status = 0;
  const TVMFFIAny* arguments = instance->arguments;
  for (int32_t i = 0; status == 0 && i < tvmconv_plan.prepared_count; arguments += tvmconv_plan.steps[i++].count) {
    TVMFFIAny result = {.type_index = kTVMFFINone};
    status = tvmconv_plan.steps[i].function(NULL, arguments, tvmconv_plan.steps[i].count, &result);
  }
  give(network, instance);
  return status;
}

/* () -> the network's handle, a number. */
EXPORT int __tvm_ffi_tvmconv_network_open(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)args, (void)num_args;
  Network* network = calloc(1, sizeof *network);
  if (network == NULL) return no_memory();
  for (int32_t i = 0; i < tvmconv_plan.step_count; ++i) network->argument_count += tvmconv_plan.steps[i].count;
  if (map_weights(&network->weights) != 0) {
    free(network);
    return -1;
  }
  if (prepare(network) != 0) {
    close_network(network);
    return -1;
  }
  result->type_index = kTVMFFIInt;
  result->v_int64 = (int64_t)(uintptr_t)network;
  return 0;
}

/* (handle). No call of the network may be running, nor follow. */
EXPORT int __tvm_ffi_tvmconv_network_close(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)num_args, (void)result;
  close_network((Network*)(uintptr_t)args[0].v_int64);
  return 0;
}

static int32_t extent_count(void) { return tvmconv_plan.free ? tvmconv_plan.free->extent_count : 0; }

/* (handle, bytes): limits the bytes of an arena that is kept between calls. */
EXPORT int __tvm_ffi_tvmconv_network_limit(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)num_args, (void)result;
  ((Network*)(uintptr_t)args[0].v_int64)->arena_limit = (uint64_t)args[1].v_int64;
  return 0;
}

/* (handle, whether to allocate an arena, extents, address of numbers, their count) -> bytes of the arena. Writes the shapes of outputs,
 * one after another, to the address, and keeps the sizes for the next call. */
EXPORT int __tvm_ffi_tvmconv_network_measure(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  const int32_t extents = extent_count();
  if (num_args != 4 + extents) return failed("ValueError", "the call has another number of extents than the network");
  Network* network = (Network*)(uintptr_t)args[0].v_int64;
  Instance* instance = take(network);
  if (instance == NULL) return no_memory();
  int status = set_extents(instance, args + 2);
  if (status == 0 && args[1].v_int64 && own_arena(instance) == NULL) status = no_memory();
  if (status == 0 && tvmconv_plan.free) {
    memcpy((void*)(uintptr_t)args[2 + extents].v_int64, instance->sizes->measures, (size_t)args[3 + extents].v_int64 * sizeof(int64_t));
    result->type_index = kTVMFFIInt;
    result->v_int64 = (int64_t)instance->sizes->arena_bytes;
  }
  give(network, instance);
  return status;
}

/* (handle, address of one double per step or 0, free extents, addresses of inputs, of outputs[, address of an arena for this call]). */
EXPORT int __tvm_ffi_tvmconv_network(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)result;
  const int32_t extents = extent_count();
  const int32_t count = 2 + extents + tvmconv_plan.input_count + tvmconv_plan.output_count;
  if (num_args != count && num_args != count + 1)
    return failed("ValueError", "the call has another number of inputs and outputs than the network");
  unsigned char* arena = num_args > count ? (unsigned char*)(uintptr_t)args[count].v_int64 : NULL;
  return run((Network*)(uintptr_t)args[0].v_int64, (double*)(uintptr_t)args[1].v_int64, args + 2, args + 2 + extents, arena);
}
