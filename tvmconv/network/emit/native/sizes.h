/* Sizes of a network's arrays where they depend on free extents. Part of executor.c. */
#include "executor.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 64u

/* Number of extents whose sizes an instance keeps. */
enum { KEPT = 8 };

/* Sizes for some extents. */
typedef struct {
  int64_t* extents;
  int64_t* measures;
  uint64_t* bytes;   /* of each storage: inputs, outputs, then the arena's */
  uint64_t* offsets; /* of each storage */
  uint64_t arena_bytes, workspace;
  uint64_t used; /* the instance's call that last used them; 0: none */
} Sizes;

static int failed(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

static int no_memory(void) { return failed("MemoryError", "out of memory for the network's arrays"); }

static void free_sizes(Sizes* sizes) {
  free(sizes->extents);
  free(sizes->measures);
  free(sizes->bytes);
  free(sizes->offsets);
  *sizes = (Sizes){NULL};
}

static uint64_t lines(uint64_t bytes) { return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES; }

/* Places the storages of the arena, each in the middle of its slot, as tvmconv/runtime/networks/placing.py does. */
static void place(const Free* f, int32_t ends, Sizes* sizes, uint64_t* begins) {
  memset(begins, 0, (size_t)(f->slot_count + 1) * sizeof *begins);
  for (int32_t i = ends; i < f->storage_count; ++i) {
    uint64_t* size = &begins[f->slots[i - ends] + 1];
    if (lines(sizes->bytes[i]) > *size) *size = lines(sizes->bytes[i]);
  }
  for (int32_t slot = 0; slot < f->slot_count; ++slot) begins[slot + 1] += begins[slot];
  for (int32_t i = ends; i < f->storage_count; ++i) {
    const uint64_t* slot = &begins[f->slots[i - ends]];
    sizes->offsets[i] = slot[0] + (slot[1] - slot[0] - lines(sizes->bytes[i])) / 2 / LINE_BYTES * LINE_BYTES;
  }
  sizes->workspace = begins[f->slot_count];
  sizes->arena_bytes = sizes->workspace + f->workspace_bytes;
}

/* Computes sizes from their extents; returns 0, or raises. */
static int measure(Sizes* sizes) {
  const Free* f = tvmconv_plan.free;
  const int32_t ends = tvmconv_plan.input_count + tvmconv_plan.output_count;
  int64_t* elements = malloc(((size_t)f->storage_count + (size_t)f->slot_count + 2) * sizeof *elements);
  if (elements == NULL) return no_memory();
  f->measure(sizes->extents, sizes->measures, elements);
  int right = 1;
  for (int32_t i = 0; i < f->measure_count; ++i) right &= sizes->measures[i] >= 1;
  for (int32_t i = 0; i < f->storage_count; ++i) {
    right &= elements[i] <= INT32_MAX;
    sizes->bytes[i] = (uint64_t)elements[i] * f->item_bytes[i];
  }
  if (right) place(f, ends, sizes, (uint64_t*)(elements + f->storage_count));
  free(elements);
  if (!right) return failed("ValueError", "an array of the network would have no elements, or more than 2147483647");
  return 0;
}

/* Returns the sizes for some extents, kept or computed in place of the least recently used ones; NULL: raised. */
static Sizes* sizes_of(Sizes* kept, const TVMFFIAny* extents, uint64_t now) {
  const Free* f = tvmconv_plan.free;
  Sizes* oldest = kept;
  for (Sizes* each = kept; each < kept + KEPT; ++each) {
    int same = each->used != 0;
    for (int32_t i = 0; same && i < f->extent_count; ++i) same = each->extents[i] == extents[i].v_int64;
    if (same) {
      each->used = now;
      return each;
    }
    if (each->used < oldest->used) oldest = each;
  }
  if (oldest->extents == NULL) {
    oldest->extents = calloc((size_t)f->extent_count + 1, sizeof *oldest->extents);
    oldest->measures = calloc((size_t)f->measure_count + 1, sizeof *oldest->measures);
    oldest->bytes = calloc((size_t)f->storage_count + 1, sizeof *oldest->bytes);
    oldest->offsets = calloc((size_t)f->storage_count + 1, sizeof *oldest->offsets);
    if (!oldest->extents || !oldest->measures || !oldest->bytes || !oldest->offsets) {
      free_sizes(oldest);
      no_memory();
      return NULL;
    }
  }
  oldest->used = 0;
  for (int32_t i = 0; i < f->extent_count; ++i) oldest->extents[i] = extents[i].v_int64;
  if (measure(oldest) != 0) return NULL;
  oldest->used = now;
  return oldest;
}
