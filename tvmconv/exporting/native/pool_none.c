/* No threads of the archive's own: the caller computes, unless a hook is set. */
#include "tvmconv-runtime.h"

int tvmconv_name_rt_pool_threads(void) { return 1; }

int tvmconv_name_rt_pool_for(void *context, int count, void (*task)(void *argument, int index), void *argument) {
  (void)context;
  for (int index = 0; index < count; ++index) task(argument, index);
  return 0;
}
