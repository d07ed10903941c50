/* Variables of threads, for compilers that call a function for the address of one, where the system's C library has no such function:
 * by the layout of GCC's and LLVM's emulation. A thread that ends gives them back. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "threads.h"

typedef struct {
  size_t bytes, alignment;
  _Atomic(uintptr_t) number; /* from 1 on; 0: nobody has asked yet */
  const void* initial;       /* NULL: zeros */
} Variable;

/* The variables of a thread. */
typedef struct {
  uintptr_t count;
  void** places;
} Thread;

static Lock numbers = FREE_LOCK;
static uintptr_t last;
static Key threads;

static void free_thread(void* of) {
  Thread* thread = of;
  for (uintptr_t at = 0; at < thread->count; at++)
    if (thread->places[at] != NULL) free(((void**)thread->places[at])[-1]);
  free(thread->places);
  free(thread);
}

static uintptr_t number_of(Variable* variable) {
  uintptr_t number = atomic_load_explicit(&variable->number, memory_order_acquire);
  if (number != 0) return number;
  take_lock(&numbers);
  number = atomic_load_explicit(&variable->number, memory_order_relaxed);
  if (number == 0) {
    if (last == 0 && !new_key(&threads, free_thread)) abort();
    atomic_store_explicit(&variable->number, number = ++last, memory_order_release);
  }
  give_lock(&numbers);
  return number;
}

/* A variable with its initial value; before it is the pointer to free. No error can be returned where memory is out. */
static void* new_variable(const Variable* variable) {
  const size_t alignment = variable->alignment < sizeof(void*) ? sizeof(void*) : variable->alignment;
  unsigned char* room = malloc(sizeof(void*) + alignment + variable->bytes);
  if (room == NULL) abort();
  unsigned char* place = (unsigned char*)(((uintptr_t)room + sizeof(void*) + alignment - 1) & ~(uintptr_t)(alignment - 1));
  ((void**)place)[-1] = room;
  return variable->initial ? memcpy(place, variable->initial, variable->bytes) : memset(place, 0, variable->bytes);
}

__attribute__((visibility("hidden"))) void* __emutls_get_address(void* of) {
  Variable* variable = of;
  const uintptr_t number = number_of(variable);
  Thread* thread = key_value(threads);
  if (thread == NULL) {
    thread = calloc(1, sizeof *thread);
    if (thread == NULL || !set_key(threads, thread)) abort();
  }
  if (thread->count < number) {
    void** places = realloc(thread->places, number * sizeof *places);
    if (places == NULL) abort();
    memset(places + thread->count, 0, (number - thread->count) * sizeof *places);
    thread->places = places;
    thread->count = number;
  }
  void** place = &thread->places[number - 1];
  return *place ? *place : (*place = new_variable(variable));
}
