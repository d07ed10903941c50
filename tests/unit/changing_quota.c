/* The threads of a process whose control group changes: shared.c, by a clock that a test sets, and the quota below another root. */
#include <stddef.h>

#include "threads.h"

static int64_t set_time = INT64_C(1) << 40; /* some minutes after this machine started */
static int64_t clock_of_test(void) { return set_time; }
#define clock_now clock_of_test
#include "shared.c"

static const char* root;
int tvmconv_quota(const char* prefix);
int tvmconv_default_threads(void) { return tvmconv_quota(root); }
int tvmconv_pool_for(void* pool, int threads, int64_t count, Body body, void* data) {
  return alone(pool, threads, count, body, data);
}
void* tvmconv_new_pool(int threads) { return &set_time; }
void tvmconv_keep_pool(void* pool) {}
void tvmconv_retire_openmp(void) {}

/* Returns the number of threads after so many seconds, with what is below `prefix`. */
__attribute__((visibility("default"))) int threads_after(double seconds, const char* prefix) {
  set_time += (int64_t)(seconds * 1e9);
  root = prefix;
  return tvmconv_threads();
}
