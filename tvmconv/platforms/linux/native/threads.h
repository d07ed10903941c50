/* Threads of Linux, and what they wait by, for pool.c, shared.c and libraries for C. */
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

/* glibc 2.34 and 2.32 gave them another version when they moved; the older one is in every glibc that is loaded, and in none that is
 * linked statically, for which an archive is. */
#if defined(__GLIBC__) && !defined(TVMCONV_ARCHIVE)
__asm__(".symver pthread_create, pthread_create@" OLDEST_GLIBC);
__asm__(".symver pthread_sigmask, pthread_sigmask@" OLDEST_GLIBC);
#endif
#include "posix_threads.h"

/* Sleeps while a word is as expected, or for no reason, until somebody wakes who waits there. */
static inline void wait_at(atomic_uint* word, unsigned expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}
static inline void wake_at(atomic_uint* word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0); }

/* Processors that this process may use: of the 8192 that Linux has at most, of which it refuses fewer bits than this machine needs. */
static inline int usable_processors(void) {
  cpu_set_t sets[8192 / CPU_SETSIZE];
  return sched_getaffinity(0, sizeof sets, sets) == 0 ? CPU_COUNT_S(sizeof sets, sets) : 1;
}

/* Names this thread, for people, and lets it run where the process's first may, as one that starts it may be bound. */
static inline void begin_worker(void) {
  cpu_set_t own[8192 / CPU_SETSIZE], first[8192 / CPU_SETSIZE];
  prctl(PR_SET_NAME, "tvmconv");
  if (sched_getaffinity(0, sizeof own, own) == 0 && sched_getaffinity(getpid(), sizeof first, first) == 0 &&
      CPU_COUNT_S(sizeof own, own) < CPU_COUNT_S(sizeof first, first))
    sched_setaffinity(0, sizeof first, first);
}
