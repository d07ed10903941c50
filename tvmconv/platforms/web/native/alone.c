/* Loops of a module without shared memory: one thread. */
#include <stdint.h>

#include "parallel.h"

int tvmconv_threads(void) { return 1; }

int tvmconv_parallel_for(int threads, int64_t count, Body body, void* data) {
  (void)threads;
  for (int64_t index = 0; index < count; index++)
    if (body(data, index) != 0) return 1;
  return 0;
}
