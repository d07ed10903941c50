/* Memory of macOS, for launcher.c and executor.c. */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES 65536u /* there are none; weights are mapped at multiples of it */
#define advise_huge(place, bytes) ((void)(place), (void)(bytes))

/* Returns memory at a multiple of `alignment`. */
static inline void* new_aligned(uint64_t alignment, uint64_t bytes) {
  void* place;
  return posix_memalign(&place, alignment, bytes) == 0 ? place : NULL;
}
static inline void free_aligned(void* place) { free(place); }
