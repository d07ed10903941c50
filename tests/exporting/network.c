/* Calls a network named net in every way that its header allows; prints what is wrong, and ends with how many things are. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "net.h"

enum { CALLERS = 4, CALLS = 25 };
static int bad;
static const void *inputs[net_INPUTS];
static void *expected[net_OUTPUTS];
static net_network *network;

static void check(const char *what, int got, int wanted) {
  if (got == wanted) return;
  printf("%s: %d (%s) instead of %d\n", what, got, net_error_string(got), wanted);
  ++bad;
}

static void *block(size_t bytes, int shift) {
  char *allocated = calloc(bytes + net_ALIGNMENT + 8, 1);
  return allocated + (net_ALIGNMENT - (uintptr_t)allocated % net_ALIGNMENT) + shift;
}

static int answers(const char *what, const net_call *call, int shift) {
  void *outputs[net_OUTPUTS];
  int wrong = 0;
  for (int i = 0; i < net_OUTPUTS; ++i) outputs[i] = block(net_outputs[i].bytes, shift);
  int status = net_run_with(network, call, inputs, outputs);
  for (int i = 0; i < net_OUTPUTS; ++i) wrong += memcmp(outputs[i], expected[i], net_outputs[i].bytes) != 0;
  if (wrong || status) printf("%s: %d outputs differ, status %d\n", what, wrong, status);
  return wrong || status;
}

static int backwards(void *context, int count, void (*task)(void *, int), void *argument) {
  *(int *)context += count;
  while (count-- > 0) task(argument, count);
  return 0;
}
static int never(void *context, int count, void (*task)(void *, int), void *argument) {
  (void)context, (void)count, (void)task, (void)argument;
  return 0;
}
static int refusing(void *context, int count, void (*task)(void *, int), void *argument) {
  (void)context, (void)count, (void)task, (void)argument;
  return 1;
}

static void *caller(void *given) {
  int *wrong = given;
  for (int i = 0; i < CALLS; ++i) *wrong += answers("a thread", NULL, 0);
  return NULL;
}

int main(void) {
  FILE *file = fopen("smoke.bin", "rb");
  for (int i = 0; i < net_INPUTS; ++i) {
    void *read = block(net_inputs[i].bytes, 0);
    if (file == NULL || fread(read, 1, net_inputs[i].bytes, file) != net_inputs[i].bytes) return 99;
    inputs[i] = read;
  }
  fclose(file);
  for (int i = 0; i < net_OUTPUTS; ++i) expected[i] = block(net_outputs[i].bytes, 0);
  check("supported", net_supported(), 1);
  check("open nowhere", net_open(NULL), net_ERROR_ARGUMENT);
  check("open", net_open(&network), net_OK);
  check("run", net_run(network, inputs, expected), net_OK);

  int tasks = 0;
  const net_call one = {NULL, NULL, 1}, many = {NULL, NULL, 7}, own = {backwards, &tasks, 3};
  bad += answers("one thread", &one, 0) + answers("seven threads", &many, 0) + answers("own threads", &own, 0);
  bad += answers("unaligned to lines", NULL, 8);
  check("tasks of own threads", tasks > 1, 1);
  const net_call idle = {never, NULL, 2}, failing = {refusing, NULL, 2}, none = {backwards, &tasks, 0}, negative = {NULL, NULL, -1};
  check("tasks that never run", net_run_with(network, &idle, inputs, expected), net_ERROR_THREADS);
  check("threads that refuse", net_run_with(network, &failing, inputs, expected), net_ERROR_THREADS);
  check("no number of threads", net_run_with(network, &none, inputs, expected), net_ERROR_ARGUMENT);
  check("a negative number", net_run_with(network, &negative, inputs, expected), net_ERROR_ARGUMENT);
  check("after these", net_run(network, inputs, expected), net_OK);

  const void *without[net_INPUTS], *shifted[net_INPUTS];
  memcpy(without, inputs, sizeof inputs);
  memcpy(shifted, inputs, sizeof inputs);
  without[0] = NULL;
  shifted[0] = (const char *)inputs[0] + 1;
  check("no network", net_run(NULL, inputs, expected), net_ERROR_ARGUMENT);
  check("no inputs", net_run(network, NULL, expected), net_ERROR_ARGUMENT);
  check("no outputs", net_run(network, inputs, NULL), net_ERROR_ARGUMENT);
  check("an input that is NULL", net_run(network, without, expected), net_ERROR_ARGUMENT);
  check("an input between elements", net_run(network, shifted, expected), net_ERROR_ARGUMENT);

  pthread_t threads[CALLERS];
  int wrong[CALLERS] = {0};
  for (int i = 0; i < CALLERS; ++i) pthread_create(&threads[i], NULL, caller, &wrong[i]);
  for (int i = 0; i < CALLERS; ++i) {
    pthread_join(threads[i], NULL);
    bad += wrong[i];
  }
  fflush(stdout);
#ifndef _WIN32
  pid_t child = fork();
  if (child == 0) _exit(answers("a forked child", NULL, 0));
  int status = 0;
  waitpid(child, &status, 0);
  check("the child", status, 0);
#endif

  net_network *second;
  check("open again", net_open(&second), net_OK);
  net_close(network);
  network = second;
  bad += answers("the second", NULL, 0);
  net_close(second);
  net_close(NULL);
  return bad;
}
