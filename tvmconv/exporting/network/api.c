/* The functions of a network's header. `tvmconv_name` becomes the library's name. */
#include "threads.h"

#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

#include "parallel.h"
#include "tvmconv-extents.h"
#include "tvmconv-raised.h"
#include "tvmconv-runtime.h"

typedef int network_function(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result);
network_function __tvm_ffi_tvmconv_network_open, __tvm_ffi_tvmconv_network_close, __tvm_ffi_tvmconv_network_measure,
    __tvm_ffi_tvmconv_network_with_threads;
#pragma weak tvmconv_allow_tiles /* of x86 alone */
int tvmconv_allow_tiles(void);

/* Number of free extents; the header of a network without them defines none. */
#ifdef tvmconv_name_EXTENTS
enum { EXTENTS = tvmconv_name_EXTENTS };
#else
enum { EXTENTS = 0 };
#endif
enum { LINE = 64, ENDS = tvmconv_name_INPUTS + tvmconv_name_OUTPUTS };

struct tvmconv_name_network {
  int64_t handle;
};

/* Options of this thread's current call, NULL: none; and whether its hook for threads failed. */
static __thread const tvmconv_name_call *current;
static __thread int unfinished;
static Lock once = FREE_LOCK; /* of the variables below */
static void *pool;
static int usual_threads; /* asked once: it reads the control groups, which takes longer than a small network */

static void make_pool(void) {
  take_lock(&once);
  if (usual_threads > 0) return give_lock(&once);
  usual_threads = tvmconv_default_threads();
  pool = tvmconv_new_pool(usual_threads);
  if (pool != NULL) tvmconv_keep_pool(pool);
  give_lock(&once);
}

int tvmconv_threads(void) { return usual_threads; }

struct loop {
  Body body;
  void *data;
  int64_t count;
  int tasks, failed, done;
};

/* Runs a contiguous share of the iterations. */
static void run_share(void *given, int index) {
  struct loop *loop = given;
  const tvmconv_name_call *outer = current;
  static const tvmconv_name_call alone = {.threads = 1};
  current = &alone; /* nested loops run in this thread */
  for (int64_t i = loop->count * index / loop->tasks; i < loop->count * (index + 1) / loop->tasks; ++i)
    if (loop->body(loop->data, i) != 0) __atomic_store_n(&loop->failed, 1, __ATOMIC_RELAXED);
  current = outer;
  __atomic_fetch_add(&loop->done, 1, __ATOMIC_RELAXED);
}

int tvmconv_parallel_for(int threads, int64_t count, Body body, void *data) {
  if (current == NULL || current->parallel_for == NULL) {
    const int one = current != NULL && current->threads == 1;
    if (!one && pool != NULL) return tvmconv_pool_for(pool, threads, count, body, data);
  }
  struct loop loop = {body, data, count, threads < count ? threads : (int)count, 0, 0};
  if (loop.tasks < 2 || current == NULL || current->parallel_for == NULL) {
    loop.tasks = 1;
    run_share(&loop, 0);
  } else if (current->parallel_for(current->context, loop.tasks, run_share, &loop) != 0 || loop.done != loop.tasks) {
    unfinished = 1;
    return -1;
  }
  return loop.failed;
}

int tvmconv_name_rt_allow_tiles(void) { return tvmconv_allow_tiles != NULL ? tvmconv_allow_tiles() : -1; }

int tvmconv_name_supported(void) { return tvmconv_name_rt_detect() & 1; }

const char *tvmconv_name_error_string(int status) {
  switch (status) {
    case tvmconv_name_OK: return "no error";
    case tvmconv_name_ERROR_CPU: return "this CPU lacks features that the network was compiled for";
    case tvmconv_name_ERROR_ARGUMENT: return "an argument is NULL, not aligned to its elements, or out of range";
    case tvmconv_name_ERROR_MEMORY: return "there is no memory";
    case tvmconv_name_ERROR_THREADS: return "the function for threads failed, or did not run every task once";
    case tvmconv_name_ERROR_NETWORK: return "the network failed, as error_text says";
#ifdef tvmconv_name_EXTENTS
    case tvmconv_name_ERROR_EXTENTS: return "the network does not take these extents, as error_text says";
    case tvmconv_name_ERROR_WORKSPACE: return "the workspace is smaller than workspace_bytes says for these extents";
#endif
    default: return "not an error code of this library";
  }
}

const char *tvmconv_name_error_text(void) { return tvmconv_raised(); }

static int failure(void) {
  const char memory[] = "MemoryError";
  return strncmp(tvmconv_raised(), memory, sizeof memory - 1) == 0 ? tvmconv_name_ERROR_MEMORY : tvmconv_name_ERROR_NETWORK;
}

int tvmconv_name_open(tvmconv_name_network **network) {
  if (network == NULL) return tvmconv_name_ERROR_ARGUMENT;
  *network = NULL;
  if (!tvmconv_name_supported()) return tvmconv_name_ERROR_CPU;
  make_pool();
  TVMFFIAny result = {.type_index = kTVMFFINone};
  tvmconv_name_network *made = malloc(sizeof *made);
  if (made == NULL) return tvmconv_name_ERROR_MEMORY;
  if (__tvm_ffi_tvmconv_network_open(NULL, NULL, 0, &result) != 0) {
    free(made);
    return failure();
  }
  made->handle = result.v_int64;
  *network = made;
  return tvmconv_name_OK;
}

void tvmconv_name_close(tvmconv_name_network *network) {
  if (network == NULL) return;
  TVMFFIAny handle = {.type_index = kTVMFFIInt, .v_int64 = network->handle}, none = {.type_index = kTVMFFINone};
  __tvm_ffi_tvmconv_network_close(NULL, &handle, 1, &none);
  free(network);
}

static int is_fine(const tvmconv_name_tensor *tensor, const void *array) {
#ifdef tvmconv_name_EXTENTS
  return array != NULL && (uintptr_t)array % tensor->element_bytes == 0;
#else
  return tensor->elements == 0 || (array != NULL && (uintptr_t)array % (tensor->bytes / tensor->elements) == 0);
#endif
}

/* Runs the network; `extents` are divided by their multiples, `arena` begins at a cache line, NULL: the network's own. */
static int run(tvmconv_name_network *network, const tvmconv_name_call *call, const TVMFFIAny *extents, void *arena,
               const void *const *inputs, void *const *outputs) {
  if ((tvmconv_name_INPUTS > 0 && inputs == NULL) || outputs == NULL) return tvmconv_name_ERROR_ARGUMENT;
  if (call != NULL && (call->threads < 0 || (call->parallel_for != NULL && call->threads == 0))) return tvmconv_name_ERROR_ARGUMENT;
  TVMFFIAny arguments[3 + EXTENTS + ENDS + 1], result = {.type_index = kTVMFFINone};
  memset(arguments, 0, sizeof arguments);
  for (int i = 0; i < 3 + EXTENTS + ENDS + 1; ++i) arguments[i].type_index = kTVMFFIInt;
  arguments[0].v_int64 = call != NULL && call->threads > 0 ? call->threads : tvmconv_threads();
  arguments[1].v_int64 = network->handle;
  for (int i = 0; i < EXTENTS; ++i) arguments[3 + i] = extents[i];
  TVMFFIAny *ends = arguments + 3 + EXTENTS;
  for (int i = 0; i < ENDS; ++i) {
    const int output = i - tvmconv_name_INPUTS;
    const void *array = output < 0 ? inputs[i] : outputs[output];
    if (!is_fine(output < 0 ? &tvmconv_name_inputs[i] : &tvmconv_name_outputs[output], array)) return tvmconv_name_ERROR_ARGUMENT;
    ends[i].v_int64 = (int64_t)(uintptr_t)array;
  }
  ends[ENDS].v_int64 = (int64_t)(uintptr_t)arena;
  const tvmconv_name_call *outer = current;
  current = call;
  unfinished = 0;
  int failed = __tvm_ffi_tvmconv_network_with_threads(NULL, arguments, 3 + EXTENTS + ENDS + 1, &result);
  current = outer;
  return !failed ? tvmconv_name_OK : unfinished ? tvmconv_name_ERROR_THREADS : failure();
}

#ifndef tvmconv_name_EXTENTS

int tvmconv_name_run_with(tvmconv_name_network *network, const tvmconv_name_call *call, const void *const *inputs, void *const *outputs) {
  return network == NULL ? tvmconv_name_ERROR_ARGUMENT : run(network, call, NULL, NULL, inputs, outputs);
}

int tvmconv_name_run(tvmconv_name_network *network, const void *const *inputs, void *const *outputs) {
  return tvmconv_name_run_with(network, NULL, inputs, outputs);
}

#else

/* Computes the outputs' shapes and the arena's bytes for some extents, and `numbers`, those divided by their multiples; returns a status. */
static int measure(tvmconv_name_network *network, const int64_t *extents, TVMFFIAny *numbers, int64_t *shapes, size_t *arena) {
  if (network == NULL || extents == NULL) return tvmconv_name_ERROR_ARGUMENT;
  TVMFFIAny arguments[4 + EXTENTS], result = {.type_index = kTVMFFINone};
  memset(arguments, 0, sizeof arguments);
  for (int i = 0; i < 4 + EXTENTS; ++i) arguments[i].type_index = kTVMFFIInt;
  arguments[0].v_int64 = network->handle;
  int64_t nowhere;
  char text[300];
  for (int i = 0; i < EXTENTS; ++i) {
    const tvmconv_name_extent *each = &tvmconv_name_extents[i];
    if (!takes_extent(each->name, each->least, each->greatest, each->multiple, extents[i], text, sizeof text)) {
      TVMFFIErrorSetRaisedFromCStr("ValueError", text);
      return tvmconv_name_ERROR_EXTENTS;
    }
    arguments[2 + i].v_int64 = extents[i] / each->multiple;
  }
  if (numbers != NULL) memcpy(numbers, arguments + 2, EXTENTS * sizeof *numbers);
  arguments[2 + EXTENTS].v_int64 = (int64_t)(uintptr_t)(shapes != NULL ? shapes : &nowhere);
  arguments[3 + EXTENTS].v_int64 = shapes != NULL ? tvmconv_name_OUTPUT_AXES : 0;
  if (__tvm_ffi_tvmconv_network_measure(NULL, arguments, 4 + EXTENTS, &result) != 0)
    return failure() == tvmconv_name_ERROR_MEMORY ? tvmconv_name_ERROR_MEMORY : tvmconv_name_ERROR_EXTENTS;
  *arena = (size_t)result.v_int64;
  return tvmconv_name_OK;
}

int tvmconv_name_output_extents(tvmconv_name_network *network, const int64_t *extents, int64_t *shapes) {
  size_t arena;
  return shapes == NULL ? tvmconv_name_ERROR_ARGUMENT : measure(network, extents, NULL, shapes, &arena);
}

/* Returns a size with room to align a workspace of any address to a line. */
size_t tvmconv_name_workspace_bytes(tvmconv_name_network *network, const int64_t *extents) {
  size_t arena;
  return measure(network, extents, NULL, NULL, &arena) == tvmconv_name_OK ? arena + LINE : 0;
}

int tvmconv_name_run_with(tvmconv_name_network *network, const tvmconv_name_call *call, const int64_t *extents,
                          const void *const *inputs, void *const *outputs) {
  TVMFFIAny numbers[EXTENTS];
  size_t arena;
  const int status = measure(network, extents, numbers, NULL, &arena);
  if (status != tvmconv_name_OK) return status;
  char *place = call != NULL ? call->workspace : NULL;
  if (place != NULL && call->workspace_bytes < arena + LINE) return tvmconv_name_ERROR_WORKSPACE;
  if (place != NULL) place += LINE - (uintptr_t)place % LINE;
  return run(network, call, numbers, place, inputs, outputs);
}

int tvmconv_name_run(tvmconv_name_network *network, const int64_t *extents, const void *const *inputs, void *const *outputs) {
  return tvmconv_name_run_with(network, NULL, extents, inputs, outputs);
}

#endif
