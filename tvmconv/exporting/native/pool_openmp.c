/* The archive's threads are OpenMP's. */
#include <omp.h>

#include "tvmconv-runtime.h"

int tvmconv_name_rt_pool_threads(void) { return omp_get_max_threads(); }

int tvmconv_name_rt_pool_for(void *context, int count, void (*task)(void *argument, int index), void *argument) {
  (void)context;
#pragma omp parallel for num_threads(count) schedule(static, 1)
  for (int index = 0; index < count; ++index) task(argument, index);
  return 0;
}
