/* One pool of threads for all libraries of a process: the first that needs it makes it, and registers it with tvm-ffi, where the others
 * find it by a name. It is never freed, as libraries are never unloaded. */
#include "threads.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <tvm/ffi/c_api.h>

#include "parallel.h"

/* Name of the struct that libraries share: raise the number where it changes. */
#define NAME "tvmconv.threads.1"
#define LOOK_NANOSECONDS (INT64_C(5) * 1000000000)
typedef struct {
  int (*parallel_for)(void* pool, int threads, int64_t count, Body body, void* data);
  void* pool;
  atomic_int threads; /* by default */
} Threads;

static int alone(void* pool, int threads, int64_t count, Body body, void* data) {
  for (int64_t index = 0; index < count; index++)
    if (body(data, index) != 0) return 1;
  return 0;
}

static int give(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  *result = (TVMFFIAny){.type_index = kTVMFFIOpaquePtr};
  result->v_ptr = self;
  return 0;
}

/* Returns the registered threads; NULL if there are none. */
static Threads* find(void) {
  const TVMFFIByteArray name = {NAME, sizeof NAME - 1};
  TVMFFIObjectHandle function = NULL;
  TVMFFIAny found = {0};
  if (TVMFFIFunctionGetGlobal(&name, &function) != 0 || function == NULL) return NULL;
  int status = TVMFFIFunctionCall(function, NULL, 0, &found);
  TVMFFIObjectDecRef(function);
  return status == 0 && found.type_index == kTVMFFIOpaquePtr ? found.v_ptr : NULL;
}

/* Registers a candidate; returns whether it is the first. */
static int offer(Threads* candidate) {
  const TVMFFIByteArray name = {NAME, sizeof NAME - 1};
  TVMFFIObjectHandle function = NULL, error = NULL;
  if (TVMFFIFunctionCreate(candidate, give, NULL, &function) != 0) return 0;
  int offered = TVMFFIFunctionSetGlobal(&name, function, 0) == 0;
  if (!offered) {
    TVMFFIErrorMoveFromRaised(&error);
    if (error != NULL) TVMFFIObjectDecRef(error);
  }
  TVMFFIObjectDecRef(function);
  return offered;
}

static void make(void) {
  Threads* candidate = malloc(sizeof *candidate);
  if (candidate == NULL) return;
  int threads = tvmconv_default_threads();
  *candidate = (Threads){tvmconv_pool_for, tvmconv_new_pool(threads), threads};
  if (candidate->pool != NULL && offer(candidate)) {
    tvmconv_keep_pool(candidate->pool);
    at_fork(tvmconv_retire_openmp, NULL);
  } else {
    free(candidate->pool);
    free(candidate);
  }
}

/* There is no lock that a fork could find taken. */
static Threads* threads_of_process(void) {
  static Threads none = {alone, NULL, 1}; /* where there is no memory */
  static _Atomic(Threads*) known;
  Threads* threads = atomic_load_explicit(&known, memory_order_acquire);
  if (threads != NULL) return threads;
  if ((threads = find()) == NULL) {
    make();
    if ((threads = find()) == NULL) return &none;
  }
  atomic_store_explicit(&known, threads, memory_order_release);
  return threads;
}

/* Affinity and quotas may change: a call some seconds after the last look reads them again, in some 0.1 ms. */
int tvmconv_threads(void) {
  static _Atomic int64_t looked;
  Threads* threads = threads_of_process();
  int64_t now = clock_now(), before = atomic_load_explicit(&looked, memory_order_relaxed);
  if (now - before >= LOOK_NANOSECONDS && atomic_compare_exchange_strong(&looked, &before, now) && before > 0 && threads->pool != NULL)
    atomic_store_explicit(&threads->threads, tvmconv_default_threads(), memory_order_relaxed);
  return atomic_load_explicit(&threads->threads, memory_order_relaxed);
}

int tvmconv_parallel_for(int threads, int64_t count, Body body, void* data) {
  Threads* shared = threads_of_process();
  return shared->parallel_for(shared->pool, threads, count, body, data);
}
