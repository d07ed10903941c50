/* Threads of Windows and their synchronization, for pool.c, shared.c and libraries for C. */
#pragma once
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#define NOGDI
#define NOUSER
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <windows.h>

/* Returns nanoseconds of a monotonic clock. */
static inline int64_t clock_now(void) {
  LARGE_INTEGER ticks, second;
  QueryPerformanceFrequency(&second);
  QueryPerformanceCounter(&ticks);
  return ticks.QuadPart / second.QuadPart * INT64_C(1000000000) + ticks.QuadPart % second.QuadPart * INT64_C(1000000000) / second.QuadPart;
}

/* Sleeps while a word has the expected value until wake_at; may return spuriously. */
static inline void wait_at(atomic_uint* word, unsigned expected) { WaitOnAddress((void*)word, &expected, sizeof expected, INFINITE); }
static inline void wake_at(atomic_uint* word) { WakeByAddressSingle((void*)word); }

/* Yields the processor. */
static inline void give_way(void) { SwitchToThread(); }

typedef SRWLOCK Lock;
#define FREE_LOCK SRWLOCK_INIT
static inline void free_lock(Lock* lock) { InitializeSRWLock(lock); }
static inline void take_lock(Lock* lock) { AcquireSRWLockExclusive(lock); }
static inline int try_lock(Lock* lock) { return TryAcquireSRWLockExclusive(lock) != 0; }
static inline void give_lock(Lock* lock) { ReleaseSRWLockExclusive(lock); }

typedef CONDITION_VARIABLE Condition;
#define FREE_CONDITION CONDITION_VARIABLE_INIT
static inline void free_condition(Condition* condition) { InitializeConditionVariable(condition); }
static inline void wait_for(Condition* condition, Lock* lock) { SleepConditionVariableSRW(condition, lock, INFINITE, 0); }
static inline void wake_one(Condition* condition) { WakeConditionVariable(condition); }
static inline void wake_all(Condition* condition) { WakeAllConditionVariable(condition); }

/* Returns 0: Windows has no fork. */
static inline int at_fork(void (*before)(void), void (*in_child)(void)) { return 0 * (before != in_child); }

/* Returns memory that begins at a cache line. */
static inline void* new_lines(size_t bytes) { return _aligned_malloc(bytes, 64); }
static inline void free_lines(void* place) { _aligned_free(place); }

/* Returns the number of processors that this process may use, of its group of up to 64. */
static inline int usable_processors(void) {
  DWORD_PTR own = 0, all = 0;
  int count = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &own, &all))
    for (; own != 0; own &= own - 1) count++;
  return count > 0 ? count : (int)GetActiveProcessorCount(ALL_PROCESSOR_GROUPS); /* 0: of several groups */
}

/* Thread-local pointers with a destructor, which also runs for all threads at exit, before the library can be unloaded. */
typedef DWORD Key;
static Key last_key;
static inline void free_last_key(void) { FlsFree(last_key); }
static inline int new_key(Key* key, PFLS_CALLBACK_FUNCTION at_end) {
  *key = last_key = FlsAlloc(at_end);
  return *key != FLS_OUT_OF_INDEXES && atexit(free_last_key) == 0;
}
static inline void* key_value(Key key) { return FlsGetValue(key); }
static inline int set_key(Key key, void* value) { return FlsSetValue(key, value); }

/* Return type and value of a thread's function. */
#define THREAD_RESULT DWORD WINAPI
#define THREAD_DONE 0

/* Starts a detached thread with a stack of some bytes, 0: twice what kernels need; returns whether it succeeded. The library with its code
 * is pinned. */
static inline int start_thread(DWORD(WINAPI* run)(void*), void* argument, size_t stack_bytes) {
  HMODULE own;
  if (!GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN, (const void*)run, &own)) return 0;
  HANDLE thread = CreateThread(NULL, stack_bytes > 0 ? stack_bytes : 2u << 20, run, argument, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
  if (thread == NULL) return 0;
  CloseHandle(thread);
  return 1;
}

static inline void begin_worker(void) {}
