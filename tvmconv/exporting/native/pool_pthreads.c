/* The archive's own threads: as many as this process may use processors, started when a loop first needs them.
 *
 * One loop has them at a time. A call that finds them taken computes its loop alone. Threads that wait sleep.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tvmconv-runtime.h"

enum { MOST_THREADS = 256, SPINS = 2000 };
/* Stack of a task, with room: musl's own default is less. */
#define STACK_BYTES (2u << 20)

static pthread_mutex_t taken = PTHREAD_MUTEX_INITIALIZER; /* by the call whose loop the threads do */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  /* of what follows */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static struct {
  void (*task)(void *argument, int index);
  void *argument;
  int count;
} loop;
static atomic_int waiting, unfinished; /* tasks that nobody has begun, and that are not done */
static int workers;

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Do tasks until all have begun; the caller has the lock. */
static void do_tasks(void) {
  while (atomic_load(&waiting) > 0) {
    int index = loop.count - atomic_fetch_sub(&waiting, 1);
    pthread_mutex_unlock(&lock);
    loop.task(loop.argument, index); /* which stays as it is until this task is done */
    pthread_mutex_lock(&lock);
    if (atomic_fetch_sub(&unfinished, 1) == 1) pthread_cond_signal(&finished);
  }
}

static void *work(void *nothing) {
  for (;;) {
    for (int i = 0; i < SPINS && atomic_load(&waiting) == 0; ++i) relax();
    pthread_mutex_lock(&lock);
    while (atomic_load(&waiting) == 0) pthread_cond_wait(&wake, &lock);
    do_tasks();
    pthread_mutex_unlock(&lock);
  }
  return nothing;
}

/* Threads do not exist in a forked child, whoever had the locks. */
static void in_child(void) {
  workers = 0;
  atomic_store(&waiting, 0);
  pthread_mutex_init(&taken, NULL);
  pthread_mutex_init(&lock, NULL);
  pthread_cond_init(&wake, NULL);
  pthread_cond_init(&finished, NULL);
}

/* Start threads until there are as many as a loop can use; fewer, if the system gives no more. */
static void grow(int wanted) {
  static int registered;
  if (!registered) registered = pthread_atfork(NULL, NULL, in_child) == 0;
  if (!registered) return;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  while (workers < wanted && workers < MOST_THREADS) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, work, NULL) != 0) break;
    ++workers;
  }
  pthread_attr_destroy(&attributes);
}

int tvmconv_name_rt_pool_threads(void) {
  static atomic_int known;
  int threads = atomic_load_explicit(&known, memory_order_relaxed);
  if (threads > 0) return threads;
  cpu_set_t set;
  threads = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  atomic_store_explicit(&known, threads, memory_order_relaxed);
  return threads;
}

int tvmconv_name_rt_pool_for(void *context, int count, void (*task)(void *argument, int index), void *argument) {
  (void)context;
  if (pthread_mutex_trylock(&taken) != 0) {
    for (int index = 0; index < count; ++index) task(argument, index);
    return 0;
  }
  if (workers < count - 1) grow(count - 1);
  pthread_mutex_lock(&lock);
  loop.task = task;
  loop.argument = argument;
  loop.count = count;
  atomic_store(&unfinished, count);
  atomic_store(&waiting, count);
  pthread_cond_broadcast(&wake);
  do_tasks();
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < SPINS && atomic_load(&unfinished) > 0; ++i) relax();
  pthread_mutex_lock(&lock);
  while (atomic_load(&unfinished) > 0) pthread_cond_wait(&finished, &lock);
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&taken);
  return 0;
}
