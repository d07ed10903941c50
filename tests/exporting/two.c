/* Two libraries of the same bundle in one program. */
#include <stdlib.h>
#include <string.h>

#include "one.h"
#include "other.h"

int main(void) {
  const one_kernel *a = one_kernels[0];
  const other_kernel *b = other_find(a->signature);
  const void *inputs[8];
  if (b == NULL || one_kernel_count != other_kernel_count) return 1;
  for (int i = 0; i < a->inputs; ++i) inputs[i] = calloc(1, a->arrays[i].bytes);
  void *x = malloc(a->arrays[a->inputs].bytes), *y = malloc(a->arrays[a->inputs].bytes);
  if (one_set_parallel_for(NULL, NULL, 2) != one_OK) return 2;
  if (a->run(NULL, inputs, x) != one_OK || b->run(NULL, inputs, y) != other_OK) return 3;
  return memcmp(x, y, a->arrays[a->inputs].bytes) != 0;
}
