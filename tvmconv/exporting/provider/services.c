/* What a network calls, in the place of tvm-ffi's library and of the pool of threads: errors are kept as text, and loops run on the
 * threads of onnxruntime's session. */
#include "tvmconv-whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

#include "parallel.h"

enum { MOST_TEXT = 400 };
static __thread char raised[MOST_TEXT];
static __thread const ort_context *session;

void tvmconv_name_rt_by(const ort_context *context) { session = context; }
const char *tvmconv_name_rt_error(void) { return raised; }

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) { snprintf(raised, sizeof raised, "%s: %s", kind, message); }

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  size_t used = (size_t)snprintf(raised, sizeof raised, "%s: ", kind);
  for (int32_t i = 0; i < count && used < sizeof raised; ++i)
    if (parts[i] != NULL) used += (size_t)snprintf(raised + used, sizeof raised - used, "%s", parts[i]);
}

/* An error is carried from the thread that raised it to its caller as a copy of its text. */
void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle *error) { *error = strdup(raised); }
void TVMFFIErrorSetRaised(TVMFFIObjectHandle error) {
  snprintf(raised, sizeof raised, "%s", error != NULL ? (const char *)error : "");
  free(error);
}
int TVMFFIObjectDecRef(TVMFFIObjectHandle error) {
  free(error);
  return 0;
}

struct loop {
  Body body;
  void *data;
  int failed;
};

static void run_one(void *given, size_t index) {
  struct loop *loop = given;
  const ort_context *outer = session;
  session = NULL; /* within an iteration there is one thread */
  if (loop->body(loop->data, (int64_t)index) != 0) __atomic_store_n(&loop->failed, 1, __ATOMIC_RELAXED);
  session = outer;
}

int tvmconv_parallel_for(int threads, int64_t count, Body body, void *data) {
  struct loop loop = {body, data, 0};
  if (session == NULL || threads < 2 || count < 2) {
    for (int64_t i = 0; i < count; ++i) run_one(&loop, (size_t)i);
    return loop.failed;
  }
  /* As many batches as threads where there are more iterations; else each is a task. */
  size_t batches = count > threads ? (size_t)threads : 0;
  if (!good(ort.parallel_for(session, run_one, (size_t)count, batches, &loop))) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "onnxruntime's threads failed");
    return -1;
  }
  return loop.failed;
}

int tvmconv_parallel_for_openmp(int threads, int64_t count, Body body, void *data) {
  return tvmconv_parallel_for(threads, count, body, data);
}

/* Calls say how many threads there are. */
int tvmconv_threads(void) { return 1; }
