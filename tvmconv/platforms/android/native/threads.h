/* Threads of Android and their synchronization, as on Linux. The headers are musl's; the types passed to bionic have the sizes of
 * bionic's (libc/include/bits). Of a signal set bionic reads 8 bytes. */
#pragma once
/* The system's default is less than the 1 MiB that kernels need. */
#define USUAL_STACK_BYTES (2u << 20)
#include "../../linux/native/threads.h"

_Static_assert(sizeof(pthread_mutex_t) == 40 && sizeof(pthread_cond_t) == 48, "a lock is of another size in bionic");
_Static_assert(sizeof(pthread_attr_t) == 56 && sizeof(pthread_t) == 8, "a thread's attributes are of another size in bionic");
_Static_assert(sizeof(pthread_key_t) == 4 && sizeof(cpu_set_t) == 128, "a key, or a set of processors, is of another size in bionic");
_Static_assert(sizeof(sigset_t) >= 8 && sizeof(struct timespec) == 16, "a set of signals, or a time, is of another size in bionic");
