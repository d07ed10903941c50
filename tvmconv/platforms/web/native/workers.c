/* Threads of a module with shared memory: each worker (threads.js) has an instance of its own, and runs loops until it is terminated.
 *
 * The page's thread, which must not sleep, starts all loops, one at a time, and takes iterations as workers do. The number of
 * iterations left shares an atomic word with the loop's number, so that a late worker takes an iteration of the current loop or none. */
#include <stdatomic.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

#include "parallel.h"

#define EXPORT __attribute__((visibility("default")))
#define MOST ((int64_t)UINT32_MAX)
/* Spins of a worker before it sleeps: some 50 us, as long as the code between two loops takes. */
#define LOOKS 20000

void __wasm_init_tls(void* memory);
__asm__(".globaltype __stack_pointer, i32\n");

static struct {
  Body body;
  void* data;
  uint32_t count;
} loop;
static _Atomic uint64_t left; /* the loop's number, and iterations not taken yet */
static _Atomic uint32_t done;
static _Atomic int failed, allowed, joined, sleepers;
static int signal; /* incremented by each loop */
static __thread int in_loop;

int tvmconv_threads(void) { return joined + 1; }

/* Takes and runs iterations until none is left. */
static void take(void) {
  uint64_t seen = atomic_load(&left);
  while ((uint32_t)seen != 0) {
    if (!atomic_compare_exchange_weak(&left, &seen, seen - 1)) continue;
    if (loop.body(loop.data, loop.count - (uint32_t)seen) != 0) atomic_store(&failed, 1);
    atomic_fetch_add(&done, 1);
    seen = atomic_load(&left);
  }
}

int tvmconv_parallel_for(int threads, int64_t count, Body body, void* data) {
  if (in_loop || threads <= 1 || count <= 1 || count > MOST || joined == 0) {
    for (int64_t index = 0; index < count; index++)
      if (body(data, index) != 0) return 1;
    return 0;
  }
  in_loop = 1;
  loop.body = body;
  loop.data = data;
  loop.count = (uint32_t)count;
  atomic_store(&failed, 0);
  atomic_store(&done, 0);
  atomic_store(&allowed, threads - 1);
  atomic_store(&left, ((left >> 32) + 1) << 32 | (uint32_t)count);
  __atomic_fetch_add(&signal, 1, __ATOMIC_SEQ_CST);
  if (sleepers > 0) __builtin_wasm_memory_atomic_notify(&signal, (unsigned)threads - 1);
  take();
  while (atomic_load(&done) != (uint32_t)count) {
  }
  in_loop = 0;
  return failed;
}

static void work(int number) {
  in_loop = 1;
  for (;;) {
    int seen = __atomic_load_n(&signal, __ATOMIC_SEQ_CST);
    for (int looks = 0; looks < LOOKS && __atomic_load_n(&signal, __ATOMIC_SEQ_CST) == seen; looks++)
      if (number < allowed) take();
    atomic_fetch_add(&sleepers, 1);
    __builtin_wasm_memory_atomic_wait32(&signal, seen, -1); /* returns at once if it has changed */
    atomic_fetch_sub(&sleepers, 1);
    if (number < allowed) take();
  }
}

/* Marks the iteration of a thread that trapped, such as by a division by 0, as failed; threads.js calls it as the thread ends. */
EXPORT void tvmconv_trapped(void) {
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", "a thread stopped: a whole number was divided by 0, or memory was not there");
  atomic_store(&failed, 1);
  atomic_fetch_add(&done, 1);
}

EXPORT int tvmconv_thread_bytes(void) { return (int)__builtin_wasm_tls_size(); }

/* Runs loops forever, with the stack below `own`, the address of this thread's variables. */
EXPORT void tvmconv_work(void* own) {
  __asm__ volatile("local.get %0\n global.set __stack_pointer" ::"r"(own));
  __wasm_init_tls(own);
  work(atomic_fetch_add(&joined, 1));
}
