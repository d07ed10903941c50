/* What the functions of the library `tested` answer to bad arguments, failing hooks and a fork; its first kernel has three inputs. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tested.h"

#define CHECK(condition)                                       \
  do {                                                         \
    if (!(condition)) {                                        \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition);  \
      return 1;                                                \
    }                                                          \
  } while (0)

static int refuses(void *context, int count, void (*task)(void *, int), void *argument) {
  (void)context, (void)count, (void)task, (void)argument;
  return 1;
}
static int forgets(void *context, int count, void (*task)(void *, int), void *argument) {
  (void)context;
  for (int i = 1; i < count; ++i) task(argument, i);
  return 0;
}
static int counts(void *context, int count, void (*task)(void *, int), void *argument) {
  *(int *)context += 1;
  for (int i = 0; i < count; ++i) task(argument, i);
  return 0;
}
static void *gives_nothing(void *context, size_t bytes, size_t alignment) {
  (void)context, (void)bytes, (void)alignment;
  return NULL;
}
static void takes(void *context, void *block) { (void)context, (void)block; }

static const tested_kernel *kernel;
static void *data, *filter, *bias, *output, *answer;

static int run(const tested_call *call) {
  const void *inputs[] = {data, filter, bias};
  memset(output, 0, kernel->arrays[3].bytes);
  return kernel->run(call, inputs, output);
}
static int right(void) { return memcmp(output, answer, kernel->arrays[3].bytes) == 0; }

int main(int count, char **arguments) {
  kernel = count > 1 ? tested_find(arguments[1]) : NULL;
  CHECK(kernel != NULL && kernel->inputs == 3 && strcmp(kernel->arrays[2].name, "bias") == 0);
  CHECK(tested_find("conv2d") == NULL && tested_find(NULL) == NULL);
  data = malloc(kernel->arrays[0].bytes), filter = malloc(kernel->arrays[1].bytes), bias = malloc(kernel->arrays[2].bytes);
  output = malloc(kernel->arrays[3].bytes), answer = malloc(kernel->arrays[3].bytes);
  CHECK(data && filter && bias && output && answer);
  for (size_t i = 0; i < kernel->arrays[0].elements; ++i) ((float *)data)[i] = (float)(i % 5);
  for (size_t i = 0; i < kernel->arrays[1].elements; ++i) ((float *)filter)[i] = (float)(i % 3);
  for (size_t i = 0; i < kernel->arrays[2].elements; ++i) ((float *)bias)[i] = (float)i;
  CHECK(run(NULL) == tested_OK);
  memcpy(answer, output, kernel->arrays[3].bytes);

  const void *missing[] = {data, NULL, bias};
  CHECK(kernel->run(NULL, missing, output) == tested_ERROR_ARGUMENT);
  const void *crooked[] = {(char *)data + 1, filter, bias};
  CHECK(kernel->run(NULL, crooked, output) == tested_ERROR_ARGUMENT);
  const void *whole[] = {data, filter, bias};
  CHECK(kernel->run(NULL, whole, NULL) == tested_ERROR_ARGUMENT);
  CHECK(kernel->pack(NULL, output) == tested_ERROR_ARGUMENT && kernel->pack(filter, NULL) == tested_ERROR_ARGUMENT);

  tested_call call;
  memset(&call, 0, sizeof call);
  call.threads = -1;
  CHECK(run(&call) == tested_ERROR_ARGUMENT);
  call.threads = 0;
  call.parallel_for = counts; /* in how many? */
  CHECK(run(&call) == tested_ERROR_ARGUMENT);
  call.threads = 4;
  call.parallel_for = refuses;
  CHECK(run(&call) == tested_ERROR_THREADS);
  call.parallel_for = forgets;
  CHECK(run(&call) == tested_ERROR_THREADS);
  int loops = 0;
  call.parallel_for = counts;
  call.context = &loops;
  CHECK(run(&call) == tested_OK && right() && loops > 0);
  call.threads = 1;
  loops = 0;
  CHECK(run(&call) == tested_OK && right() && loops == 0); /* one thread is the caller's */

  CHECK(tested_set_parallel_for(counts, &loops, 0) == tested_ERROR_ARGUMENT);
  CHECK(tested_set_parallel_for(counts, &loops, 2) == tested_OK);
  CHECK(run(NULL) == tested_OK && right() && loops > 0);
  CHECK(tested_set_parallel_for(NULL, NULL, 3) == tested_OK);
  CHECK(run(NULL) == tested_OK && right());

  CHECK(tested_set_allocator(gives_nothing, NULL, NULL) == tested_ERROR_ARGUMENT);
  CHECK(tested_set_allocator(gives_nothing, takes, NULL) == tested_OK);
  CHECK(kernel->workspace_bytes(3) > 0);
  CHECK(run(NULL) == tested_ERROR_MEMORY);
  memset(&call, 0, sizeof call);
  call.threads = 3;
  call.workspace_bytes = kernel->workspace_bytes(3);
  call.workspace = malloc(call.workspace_bytes);
  CHECK(run(&call) == tested_OK && right());
  call.workspace_bytes -= 1;
  CHECK(run(&call) == tested_ERROR_WORKSPACE);
  free(call.workspace);
  CHECK(tested_set_allocator(NULL, NULL, NULL) == tested_OK);
  CHECK(run(NULL) == tested_OK && right());

  for (int i = 0; i <= tested_ERROR_KERNEL + 1; ++i) CHECK(strlen(tested_error_string(i)) > 0);
  fflush(stdout);
  pid_t child = fork(); /* after the library may have started threads */
  if (child == 0) _exit(run(NULL) == tested_OK && right() && run(NULL) == tested_OK && right() ? 0 : 1);
  int ended = 1;
  CHECK(child > 0 && waitpid(child, &ended, 0) == child && ended == 0);
  CHECK(run(NULL) == tested_OK && right());
  free(data), free(filter), free(bias), free(output), free(answer);
  return 0;
}
