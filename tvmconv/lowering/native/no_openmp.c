/* OpenMP's loops where GNU OpenMP is not used: they run as all other loops. */
#include "parallel.h"

int tvmconv_parallel_for_openmp(int threads, int64_t count, Body body, void* data) {
  return tvmconv_parallel_for(threads, count, body, data);
}

int tvmconv_by_team(int threads, int (*call)(void* data), void* data) {
  (void)threads;
  return call(data);
}

void tvmconv_retire_openmp(void) {}
