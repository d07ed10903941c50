/* Loops of hosts with OpenMP's threads, on systems whose processes have none of GNU's: the pool does them. */
#include "parallel.h"

int tvmconv_parallel_for_openmp(int threads, int64_t count, Body body, void* data) {
  return tvmconv_parallel_for(threads, count, body, data);
}

int tvmconv_by_team(int threads, int (*call)(void* data), void* data) {
  (void)threads;
  return call(data);
}

void tvmconv_retire_openmp(void) {}
