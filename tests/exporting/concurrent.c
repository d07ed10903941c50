/* Calls every kernel of the library `tested` from 8 threads at once, by the library's own threads, by a hook of each call, with
 * workspaces and without: all must give the bits that one thread got. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tested.h"

enum { CALLERS = 8, ROUNDS = 4, MOST_INPUTS = 8, MOST_KERNELS = 128 };

static void *inputs[MOST_KERNELS][MOST_INPUTS];
static void *expected[MOST_KERNELS];

static int backwards(void *context, int count, void (*task)(void *, int), void *argument) {
  *(int *)context += 1; /* of this call alone */
  while (count-- > 0) task(argument, count);
  return 0;
}

static void fail(const char *what, int number) {
  fprintf(stderr, "%s: %s\n", tested_kernels[number]->signature, what);
  exit(1);
}

static void *caller(void *given) {
  int self = (int)(intptr_t)given;
  for (int round = 0; round < ROUNDS; ++round) {
    for (int n = 0; n < tested_kernel_count; ++n) {
      const tested_kernel *kernel = tested_kernels[n];
      const void *arrays[MOST_INPUTS];
      size_t bytes = kernel->arrays[kernel->inputs].bytes;
      int calls = 0, way = (self + round) % 4;
      tested_call call;
      memset(&call, 0, sizeof call);
      memcpy(arrays, inputs[n], sizeof arrays);
      if (way & 1) {
        call.parallel_for = backwards;
        call.context = &calls;
        call.threads = 3;
      }
      if (way & 2) {
        call.workspace_bytes = kernel->workspace_bytes(call.threads);
        call.workspace = malloc(call.workspace_bytes + 1);
      }
      void *output = malloc(bytes + 1);
      if (output == NULL) fail("no memory", n);
      int status = kernel->run(way ? &call : NULL, arrays, output);
      if (status != tested_OK) fail(tested_error_string(status), n);
      if (memcmp(output, expected[n], bytes) != 0) fail("another answer than in one thread", n);
      free(output);
      free(call.workspace);
    }
  }
  return NULL;
}

int main(void) {
  uint32_t state = 1;
  for (int n = 0; n < tested_kernel_count; ++n) {
    const tested_kernel *kernel = tested_kernels[n];
    const void *arrays[MOST_INPUTS];
    for (int i = 0; i < kernel->inputs; ++i) {
      uint16_t *made = malloc(kernel->arrays[i].bytes + 2);
      for (size_t k = 0; k < kernel->arrays[i].bytes / 2; ++k) {
        state = state * 1664525u + 1013904223u;
        made[k] = (uint16_t)(0x3C00 + (state >> 24)); /* finite in all types */
      }
      arrays[i] = inputs[n][i] = made;
    }
    expected[n] = malloc(kernel->arrays[kernel->inputs].bytes + 1);
    tested_call call;
    memset(&call, 0, sizeof call);
    call.threads = 1;
    if (kernel->run(&call, arrays, expected[n]) != tested_OK) fail("does not run", n);
  }
  pthread_t threads[CALLERS];
  for (int i = 0; i < CALLERS; ++i)
    if (pthread_create(&threads[i], NULL, caller, (void *)(intptr_t)i) != 0) return 2;
  for (int i = 0; i < CALLERS; ++i) pthread_join(threads[i], NULL);
  for (int n = 0; n < tested_kernel_count; ++n) {
    for (int i = 0; i < tested_kernels[n]->inputs; ++i) free(inputs[n][i]);
    free(expected[n]);
  }
  return 0;
}
