/* Loops by the threads of GNU OpenMP, which PyTorch's are: with threads of our own beside those, which spin for a while after
 * each of PyTorch's operators, both would want the same processors. The names are weak, so that a library needs no OpenMP. */
#include <stddef.h>

#include "parallel.h"

__attribute__((weak)) void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags);
__attribute__((weak)) int omp_get_thread_num(void);
__attribute__((weak)) int omp_get_num_threads(void);
__attribute__((weak)) int omp_get_initial_device(void);
__attribute__((weak)) int omp_pause_resource(int kind, int device); /* GCC 9's and later */

typedef struct {
  int64_t count;
  Body body;
  void* data;
  int failed;
} Region;

/* OpenMP may give fewer threads than asked for (nested regions, limits). */
static void run_thread(void* argument) {
  Region* region = argument;
  const int64_t threads = omp_get_num_threads(), part = (region->count + threads - 1) / threads;
  const int64_t begin = omp_get_thread_num() * part, end = begin + part < region->count ? begin + part : region->count;
  for (int64_t index = begin; index < end; index++)
    if (region->body(region->data, index) != 0) __atomic_store_n(&region->failed, 1, __ATOMIC_RELAXED);
}

/* Team that this thread's loops are in. */
static __thread void* team;

int tvmconv_parallel_for_openmp(int threads, int64_t count, Body body, void* data) {
  if (team != NULL) return tvmconv_pool_for(team, threads, count, body, data);
  if (GOMP_parallel == NULL) return tvmconv_parallel_for(threads, count, body, data);
  Region region = {count, body, data, 0};
  GOMP_parallel(run_thread, &region, threads < count ? threads : count, 0);
  return region.failed;
}

typedef struct {
  void* team;
  int (*call)(void* data);
  void* data;
  int status;
} Member;

static void run_member(void* argument) {
  Member* region = argument;
  if (omp_get_thread_num() > 0) {
    tvmconv_join_team(region->team, omp_get_thread_num() - 1);
    return;
  }
  void* outer = team;
  team = region->team;
  tvmconv_begin_team(team, omp_get_num_threads());
  region->status = region->call(region->data);
  tvmconv_end_team(team);
  team = outer;
}

int tvmconv_by_team(int threads, int (*call)(void* data), void* data) {
  Member region = {NULL, call, data, 0};
  if (GOMP_parallel == NULL || threads < 2 || (region.team = tvmconv_new_team(threads)) == NULL) return call(data);
  GOMP_parallel(run_member, &region, threads, 0);
  tvmconv_free_team(region.team);
  return region.status;
}

/* A forked child has OpenMP's record of its threads, but not the threads, and its first parallel region would wait for them for ever.
 * Retiring them before the fork leaves a clean record; the parent's next region starts new ones. */
void tvmconv_retire_openmp(void) {
  if (omp_pause_resource != NULL) omp_pause_resource(1, omp_get_initial_device());
}
