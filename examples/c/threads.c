/* Calls a kernel on this program's own threads, with a packed filter and one workspace for all calls.
 *
 *     tvmconv build conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32 -o conv.bundle
 *     tvmconv export-c conv.bundle -o conv
 *     cc -O2 examples/c/threads.c -Iconv conv/libconv.a -pthread -o threads && ./threads
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conv.h"

enum { THREADS = 4, CALLS = 100 };

/* A simple pool: the threads and the caller take the next task until none is left. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t wake, done;
  void (*task)(void *argument, int index);
  void *argument;
  int next, count, unfinished, closing;
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL, 0, 0, 0, 0};

static void do_tasks(void) { /* the caller holds the lock */
  while (pool.next < pool.count) {
    int index = pool.next++;
    pthread_mutex_unlock(&pool.lock);
    pool.task(pool.argument, index);
    pthread_mutex_lock(&pool.lock);
    if (--pool.unfinished == 0) pthread_cond_signal(&pool.done);
  }
}

static void *worker(void *nothing) {
  pthread_mutex_lock(&pool.lock);
  while (!pool.closing) {
    do_tasks();
    pthread_cond_wait(&pool.wake, &pool.lock);
  }
  pthread_mutex_unlock(&pool.lock);
  return nothing;
}

/* The library's hook; returns when all tasks are done. */
static int parallel_for(void *context, int count, void (*task)(void *argument, int index), void *argument) {
  (void)context;
  pthread_mutex_lock(&pool.lock);
  pool.task = task;
  pool.argument = argument;
  pool.next = 0;
  pool.count = pool.unfinished = count;
  pthread_cond_broadcast(&pool.wake);
  do_tasks();
  while (pool.unfinished > 0) pthread_cond_wait(&pool.done, &pool.lock);
  pthread_mutex_unlock(&pool.lock);
  return 0;
}

static void check(int status) {
  if (status == conv_OK) return;
  fprintf(stderr, "conv: %s\n", conv_error_string(status));
  exit(1);
}

static float data[conv_conv2d_64x56x56_64_3x3_DATA_ELEMENTS], filter[conv_conv2d_64x56x56_64_3x3_FILTER_ELEMENTS];
static float output[conv_conv2d_64x56x56_64_3x3_OUTPUT_ELEMENTS], alone[conv_conv2d_64x56x56_64_3x3_OUTPUT_ELEMENTS];

int main(void) {
  pthread_t threads[THREADS - 1];
  for (size_t i = 0; i < sizeof data / sizeof *data; ++i) data[i] = (float)(i % 7) - 3;
  for (size_t i = 0; i < sizeof filter / sizeof *filter; ++i) filter[i] = (float)(i % 5) - 2;
  check(conv_conv2d_64x56x56_64_3x3(data, filter, alone)); /* in this thread */

  for (int i = 0; i < THREADS - 1; ++i)
    if (pthread_create(&threads[i], NULL, worker, NULL) != 0) return 1;
  conv_call call = {parallel_for, NULL, THREADS, NULL, conv_conv2d_64x56x56_64_3x3_packed_workspace_bytes(THREADS)};
  void *packed = malloc(conv_conv2d_64x56x56_64_3x3_packed_bytes());
  call.workspace = malloc(call.workspace_bytes + 1);
  if (packed == NULL || call.workspace == NULL) return 1;
  check(conv_conv2d_64x56x56_64_3x3_pack(filter, packed));
  for (int i = 0; i < CALLS; ++i) /* none of which allocates */
    check(conv_conv2d_64x56x56_64_3x3_packed_with(&call, data, packed, output));

  pthread_mutex_lock(&pool.lock);
  pool.closing = 1;
  pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.lock);
  for (int i = 0; i < THREADS - 1; ++i) pthread_join(threads[i], NULL);
  free(packed);
  free(call.workspace);
  printf("%d calls in %d threads: %s\n", CALLS, THREADS, memcmp(output, alone, sizeof alone) ? "wrong" : "the bits of one thread");
  return memcmp(output, alone, sizeof alone) != 0;
}
