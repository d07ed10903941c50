/* Threads of POSIX, of Linux, Android and macOS. */
#pragma once
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* Nanoseconds of a clock that only goes forward. */
static inline int64_t clock_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* Lets others have the processor. */
static inline void give_way(void) { sched_yield(); }

typedef pthread_mutex_t Lock;
#define FREE_LOCK PTHREAD_MUTEX_INITIALIZER
static inline void free_lock(Lock* lock) { pthread_mutex_init(lock, NULL); }
static inline void take_lock(Lock* lock) { pthread_mutex_lock(lock); }
static inline int try_lock(Lock* lock) { return pthread_mutex_trylock(lock) == 0; }
static inline void give_lock(Lock* lock) { pthread_mutex_unlock(lock); }

typedef pthread_cond_t Condition;
#define FREE_CONDITION PTHREAD_COND_INITIALIZER
static inline void free_condition(Condition* condition) { pthread_cond_init(condition, NULL); }
static inline void wait_for(Condition* condition, Lock* lock) { pthread_cond_wait(condition, lock); }
static inline void wake_one(Condition* condition) { pthread_cond_signal(condition); }
static inline void wake_all(Condition* condition) { pthread_cond_broadcast(condition); }

/* Runs functions before a fork, and in the child; returns 0. */
static inline int at_fork(void (*before)(void), void (*in_child)(void)) { return pthread_atfork(before, NULL, in_child); }

/* Memory from a cache line on. */
static inline void* new_lines(size_t bytes) {
  void* place;
  return posix_memalign(&place, 64, bytes) == 0 ? place : NULL;
}
static inline void free_lines(void* place) { free(place); }

/* A pointer of each thread, passed to a function when the thread ends; returns whether there is one. */
typedef pthread_key_t Key;
static inline int new_key(Key* key, void (*at_end)(void*)) { return pthread_key_create(key, at_end) == 0; }
static inline void* key_value(Key key) { return pthread_getspecific(key); }
static inline int set_key(Key key, void* value) { return pthread_setspecific(key, value) == 0; }

/* Type and value of what a function for a thread returns. */
#define THREAD_RESULT void*
#define THREAD_DONE NULL

/* Starts a detached thread that handles no signals, which are the program's, with a stack of so many bytes; 0: the system's default,
 * or USUAL_STACK_BYTES. Returns whether it was started. */
static inline int start_thread(THREAD_RESULT (*run)(void*), void* argument, size_t stack_bytes) {
  pthread_t thread;
  pthread_attr_t detached;
  sigset_t all, before;
  if (pthread_attr_init(&detached) != 0) return 0;
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
#ifdef USUAL_STACK_BYTES
  if (stack_bytes == 0) stack_bytes = USUAL_STACK_BYTES;
#endif
  if (stack_bytes > 0) pthread_attr_setstacksize(&detached, stack_bytes);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int status = pthread_create(&thread, &detached, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&detached);
  return status == 0;
}
