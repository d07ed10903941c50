/* Loops of a network on the threads of onnxruntime's session, in the place of the library's pool. */
#include <tvm/ffi/c_api.h>

#include "parallel.h"
#include "tvmconv-whole.h"

static __thread const ort_context *session;

void tvmconv_name_rt_by(const ort_context *context) { session = context; }

struct loop {
  Body body;
  void *data;
  int failed;
};

static void run_one(void *given, size_t index) {
  struct loop *loop = given;
  const ort_context *outer = session;
  session = NULL; /* nested loops run in this thread */
  if (loop->body(loop->data, (int64_t)index) != 0) __atomic_store_n(&loop->failed, 1, __ATOMIC_RELAXED);
  session = outer;
}

int tvmconv_parallel_for(int threads, int64_t count, Body body, void *data) {
  struct loop loop = {body, data, 0};
  if (session == NULL || threads < 2 || count < 2) {
    for (int64_t i = 0; i < count; ++i) run_one(&loop, (size_t)i);
    return loop.failed;
  }
  /* One batch for each thread if there are more iterations than threads; else each iteration is a task. */
  size_t batches = count > threads ? (size_t)threads : 0;
  if (!good(ort.parallel_for(session, run_one, (size_t)count, batches, &loop))) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "onnxruntime's threads failed");
    return -1;
  }
  return loop.failed;
}

/* Default number of threads, which is not used: run_whole passes one. */
int tvmconv_threads(void) { return 1; }
