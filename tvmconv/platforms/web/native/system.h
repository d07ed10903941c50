/* Memory of the web, for launcher.c and executor.c. */
#pragma once
#include <stdint.h>
#include <stdlib.h>

#define HUGE_PAGE_BYTES 64u /* there are none */
#define advise_huge(place, bytes) ((void)(place), (void)(bytes))

/* Returns memory at a multiple of `alignment`. */
static inline void* new_aligned(uint64_t alignment, uint64_t bytes) { return aligned_alloc(alignment, bytes); }
static inline void free_aligned(void* place) { free(place); }
