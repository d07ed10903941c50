/* Checks of indices against the axes that they read or write. Compiled for the widest vectors of the CPU that the network is for. */
#include <stdint.h>
#include <tvm/ffi/c_api.h>

#include "parallel.h"

#define AT_ONCE 16384 /* indices that a thread takes */
#define LANES 8

typedef int64_t Longs __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

typedef struct {
  const void *from;
  void *to;
  int64_t count, step, low, end;
  int (*copy)(const void *own, int64_t first, int64_t count);
} Indices;

/* Copies some of the indices; returns whether one is not within the bounds. */
#define COPY(NAME, FROM, FROM_LANES, TO, TO_LANES)                                                  \
  static int NAME(const void *own, int64_t first, int64_t count) {                                  \
    const Indices *all = own;                                                                       \
    const FROM *from = (const FROM *)all->from + first * all->step;                                 \
    TO *to = (TO *)all->to + first * all->step;                                                     \
    const int64_t low = all->low, end = all->end;                                                   \
    int64_t i = 0;                                                                                  \
    int beyond = 0;                                                                                 \
    if (all->step == 1) {                                                                           \
      FROM_LANES found = {0};                                                                       \
      for (; i + LANES <= count; i += LANES) {                                                      \
        const FROM_LANES x = *(const FROM_LANES *)(from + i);                                       \
        found |= (x < (FROM)low) | (x >= (FROM)end);                                                \
        *(TO_LANES *)(to + i) = __builtin_convertvector(x, TO_LANES);                               \
      }                                                                                             \
      for (int lane = 0; lane < LANES; ++lane) beyond |= found[lane] != 0;                          \
    }                                                                                               \
    for (; i < count; ++i) {                                                                        \
      beyond |= (from[i * all->step] < low) | (from[i * all->step] >= end);                         \
      to[i * all->step] = (TO)from[i * all->step];                                                  \
    }                                                                                               \
    return beyond;                                                                                  \
  }

COPY(copy_longs, int64_t, Longs, int64_t, Longs)
COPY(copy_as_ints, int64_t, Longs, int32_t, Ints)
COPY(copy_ints, int32_t, Ints, int32_t, Ints)

static int copy_some(void *context, int64_t task) {
  const Indices *all = context;
  const int64_t first = task * AT_ONCE, left = all->count - first;
  return all->copy(all, first, left < AT_ONCE ? left : AT_ONCE);
}

/* Writes a number before `end`; returns where it begins. */
static char *write_number(char *end, int64_t number) {
  uint64_t left = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
  *--end = 0;
  do *--end = (char)('0' + left % 10);
  while (left /= 10);
  if (number < 0) *--end = '-';
  return end;
}

static int raise_of(const Indices *all) {
  int64_t index = 0;
  for (int64_t i = 0; i < all->count; ++i) {
    const int64_t at = i * all->step;
    index = all->copy == copy_ints ? ((const int32_t *)all->from)[at] : ((const int64_t *)all->from)[at];
    if (index < all->low || index >= all->end) break;
  }
  char text[2][24];
  const char *parts[] = {"index ", write_number(text[0] + 24, index), " is out of range of an axis of extent ",
                         write_number(text[1] + 24, all->end)};
  TVMFFIErrorSetRaisedFromCStrParts("IndexError", parts, 4);
  return -1;
}

/* indices[count][width] -> checked, of 4 or 8 bytes each, or from 8 to 4: copies one column, whose indices must be from `low` to below
 * `end`, a value of their type; else raises an IndexError. */
int tvmconv_check_indices(const void *indices, void *checked, int64_t count, int64_t width, int64_t column, int64_t low, int64_t end,
                          int64_t bytes, int64_t checked_bytes) {
  Indices all = {(const char *)indices + column * bytes,
                 (char *)checked + column * checked_bytes,
                 count,
                 width,
                 low,
                 end,
                 bytes == 4 ? copy_ints : checked_bytes == 4 ? copy_as_ints : copy_longs};
  const int64_t tasks = (count + AT_ONCE - 1) / AT_ONCE;
  if (tasks > 2) return tvmconv_share(tasks, copy_some, &all) ? raise_of(&all) : 0;
  int beyond = 0;
  for (int64_t task = 0; task < tasks; ++task) beyond |= copy_some(&all, task);
  return beyond ? raise_of(&all) : 0;
}
