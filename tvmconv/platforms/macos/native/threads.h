/* Threads of macOS, and what they wait by, for pool.c and shared.c. */
#pragma once
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The system's own are of 512 KiB; kernels need 1 MiB. */
#define USUAL_STACK_BYTES (2u << 20)
#include "posix_threads.h"

/* The system's own, which its C++ library waits by, too. */
int __ulock_wait(uint32_t operation, void* address, uint64_t value, uint32_t microseconds);
int __ulock_wake(uint32_t operation, void* address, uint64_t value);
#define COMPARE_AND_WAIT 1u

/* Sleeps while a word is as expected, or for no reason, until somebody wakes who waits there. */
static inline void wait_at(atomic_uint* word, unsigned expected) { __ulock_wait(COMPARE_AND_WAIT, word, expected, 0); }
static inline void wake_at(atomic_uint* word) { __ulock_wake(COMPARE_AND_WAIT, word, 0); }

/* Processors that this process may use. */
static inline int usable_processors(void) {
  const long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (int)count : 1;
}

/* Names this thread, for people. */
static inline void begin_worker(void) { pthread_setname_np("tvmconv"); }
