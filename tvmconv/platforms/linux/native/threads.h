/* Threads of Linux and their synchronization, for pool.c, shared.c and libraries for C. */
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "processor.h"

/* glibc 2.34 and 2.32 gave these functions new versions when they moved; every shared glibc has the older version, a static one, which
 * an archive may be linked with, has none. */
#if defined(__GLIBC__) && !defined(TVMCONV_ARCHIVE)
__asm__(".symver pthread_create, pthread_create@" OLDEST_GLIBC);
__asm__(".symver pthread_sigmask, pthread_sigmask@" OLDEST_GLIBC);
#endif
#include "posix_threads.h"

/* Sleeps while a word has the expected value until wake_at; may return spuriously. */
static inline void wait_at(atomic_uint* word, unsigned expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}
static inline void wake_at(atomic_uint* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

/* Returns the number of processors in the affinity. The set has Linux's maximum, 8192: it refuses sets smaller than the machine needs. */
static inline int usable_processors(void) {
  cpu_set_t sets[8192 / CPU_SETSIZE];
  return sched_getaffinity(0, sizeof sets, sets) == 0 ? CPU_COUNT_S(sizeof sets, sets) : 1;
}

/* Names this thread, and gives it the main thread's affinity if that is wider: the thread that starts it may be bound. */
static inline void begin_worker(void) {
  cpu_set_t own[8192 / CPU_SETSIZE], first[8192 / CPU_SETSIZE];
  prctl(PR_SET_NAME, "tvmconv");
  if (sched_getaffinity(0, sizeof own, own) == 0 && sched_getaffinity(getpid(), sizeof first, first) == 0 &&
      CPU_COUNT_S(sizeof own, own) < CPU_COUNT_S(sizeof first, first))
    sched_setaffinity(0, sizeof first, first);
}
