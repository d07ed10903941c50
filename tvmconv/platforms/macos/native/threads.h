/* Threads of macOS and their synchronization, for pool.c, shared.c and libraries for C. */
#pragma once
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The system's default is 512 KiB; kernels need 1 MiB. */
#define USUAL_STACK_BYTES (2u << 20)
#include "posix_threads.h"

/* Private functions of the system, which its C++ library uses, too. */
int __ulock_wait(uint32_t operation, void* address, uint64_t value, uint32_t microseconds);
int __ulock_wake(uint32_t operation, void* address, uint64_t value);
#define COMPARE_AND_WAIT 1u

/* Sleeps while a word has the expected value until wake_at; may return spuriously. */
static inline void wait_at(atomic_uint* word, unsigned expected) { __ulock_wait(COMPARE_AND_WAIT, word, expected, 0); }
static inline void wake_at(atomic_uint* word) { __ulock_wake(COMPARE_AND_WAIT, word, 0); }

/* Returns the number of processors. */
static inline int usable_processors(void) {
  const long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (int)count : 1;
}

/* Names this thread. */
static inline void begin_worker(void) { pthread_setname_np("tvmconv"); }
