/* Memory of Linux and Android, for launcher.c and executor.c. */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES (2u << 20)

/* Asks for huge pages. */
static inline void advise_huge(void* place, uint64_t bytes) { madvise(place, bytes, MADV_HUGEPAGE); }

/* Returns memory at a multiple of `alignment`. */
static inline void* new_aligned(uint64_t alignment, uint64_t bytes) {
  void* place;
  return posix_memalign(&place, alignment, bytes) == 0 ? place : NULL;
}
static inline void free_aligned(void* place) { free(place); }
