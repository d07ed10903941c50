/* Memory of Windows, for launcher.c and executor.c. */
#pragma once
#include <malloc.h>
#include <stdint.h>

#define HUGE_PAGE_BYTES 64u /* large pages need an administrator's permission */
#define advise_huge(place, bytes) ((void)(place), (void)(bytes))

/* Returns memory at a multiple of `alignment`. */
static inline void* new_aligned(uint64_t alignment, uint64_t bytes) { return _aligned_malloc(bytes, alignment); }
static inline void free_aligned(void* place) { _aligned_free(place); }
