/* The archive's own threads: one for each processor that `processors.c` counts, started when a loop first needs them.
 *
 * They run one loop at a time; a call that finds them busy runs its loop alone. After a short spin, waiting threads sleep.
 */
#include "threads.h"

#include <stdatomic.h>

#include "tvmconv-runtime.h"

enum { MOST_THREADS = 256, SPINS = 2000 };
/* Twice the stack that a task needs; musl's default is smaller. */
#define STACK_BYTES (2u << 20)

static Lock taken = FREE_LOCK; /* held by the call whose loop the threads run */
static Lock lock = FREE_LOCK;  /* of the state below */
static Condition wake = FREE_CONDITION, finished = FREE_CONDITION;
static struct {
  void (*task)(void *argument, int index);
  void *argument;
  int count;
} loop;
static atomic_int waiting, unfinished; /* tasks not begun, tasks not done */
static int workers;

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Runs tasks until all have begun; the caller holds the lock. */
static void do_tasks(void) {
  while (atomic_load(&waiting) > 0) {
    int index = loop.count - atomic_fetch_sub(&waiting, 1);
    give_lock(&lock);
    loop.task(loop.argument, index); /* `loop` does not change until this task is done */
    take_lock(&lock);
    if (atomic_fetch_sub(&unfinished, 1) == 1) wake_one(&finished);
  }
}

static THREAD_RESULT work(void *nothing) {
  (void)nothing;
  for (;;) {
    for (int i = 0; i < SPINS && atomic_load(&waiting) == 0; ++i) relax();
    take_lock(&lock);
    while (atomic_load(&waiting) == 0) wait_for(&wake, &lock);
    do_tasks();
    give_lock(&lock);
  }
  return THREAD_DONE;
}

/* A forked child has no workers, and locks that other threads held stay locked. */
static void in_child(void) {
  workers = 0;
  atomic_store(&waiting, 0);
  free_lock(&taken);
  free_lock(&lock);
  free_condition(&wake);
  free_condition(&finished);
}

/* Starts threads up to the wanted number, or as many as the system allows. */
static void grow(int wanted) {
  static int registered;
  if (!registered) registered = at_fork(NULL, in_child) == 0;
  if (!registered) return;
  while (workers < wanted && workers < MOST_THREADS && start_thread(work, NULL, STACK_BYTES)) ++workers;
}

int tvmconv_name_rt_default_threads(void); /* in processors.c */

int tvmconv_name_rt_pool_threads(void) {
  static atomic_int known;
  int threads = atomic_load_explicit(&known, memory_order_relaxed);
  if (threads > 0) return threads;
  threads = tvmconv_name_rt_default_threads();
  atomic_store_explicit(&known, threads, memory_order_relaxed);
  return threads;
}

int tvmconv_name_rt_pool_for(void *context, int count, void (*task)(void *argument, int index), void *argument) {
  (void)context;
  if (!try_lock(&taken)) {
    for (int index = 0; index < count; ++index) task(argument, index);
    return 0;
  }
  if (workers < count - 1) grow(count - 1);
  take_lock(&lock);
  loop.task = task;
  loop.argument = argument;
  loop.count = count;
  atomic_store(&unfinished, count);
  atomic_store(&waiting, count);
  wake_all(&wake);
  do_tasks();
  give_lock(&lock);
  for (int i = 0; i < SPINS && atomic_load(&unfinished) > 0; ++i) relax();
  take_lock(&lock);
  while (atomic_load(&unfinished) > 0) wait_for(&finished, &lock);
  give_lock(&lock);
  give_lock(&taken);
  return 0;
}
