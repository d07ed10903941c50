/* Whether indices lie within the axes that they read or write, linked into networks. */
#include <stdint.h>
#include <tvm/ffi/c_api.h>

#include "parallel.h"

#define AT_ONCE 16384

typedef struct {
  const char *from;
  char *to;
  int64_t count, step, low, end, bytes;
} Indices;

/* Copies so many indices, of 4 or 8 bytes; returns whether one is not within the bounds. */
static int copy_checked(void *context, int64_t task) {
  const Indices *all = context;
  const int64_t first = task * AT_ONCE, left = all->count - first, count = left < AT_ONCE ? left : AT_ONCE;
  int beyond = 0;
  if (all->bytes == 8) {
    const int64_t *from = (const int64_t *)all->from + first * all->step;
    int64_t *to = (int64_t *)all->to + first * all->step;
    for (int64_t i = 0; i < count * all->step; i += all->step) {
      beyond |= (from[i] < all->low) | (from[i] >= all->end);
      to[i] = from[i];
    }
  } else {
    const int32_t *from = (const int32_t *)all->from + first * all->step;
    int32_t *to = (int32_t *)all->to + first * all->step;
    for (int64_t i = 0; i < count * all->step; i += all->step) {
      beyond |= (from[i] < all->low) | (from[i] >= all->end);
      to[i] = from[i];
    }
  }
  return beyond;
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
    index = all->bytes == 8 ? ((const int64_t *)all->from)[at] : ((const int32_t *)all->from)[at];
    if (index < all->low || index >= all->end) break;
  }
  char text[2][24];
  const char *parts[] = {"index ", write_number(text[0] + 24, index), " is out of range of an axis of extent ", write_number(text[1] + 24, all->end)};
  TVMFFIErrorSetRaisedFromCStrParts("IndexError", parts, 4);
  return -1;
}

/* indices[count][width] -> checked, of 4 or 8 bytes each: those of one column, which lie from `low` to below `end`, else an IndexError. */
int tvmconv_check_indices(const void *indices, void *checked, int64_t count, int64_t width, int64_t column, int64_t low, int64_t end,
                          int64_t bytes) {
  Indices all = {(const char *)indices + column * bytes, (char *)checked + column * bytes, count, width, low, end, bytes};
  const int64_t tasks = (count + AT_ONCE - 1) / AT_ONCE;
  if (tasks > 2) return tvmconv_share(tasks, copy_checked, &all) ? raise_of(&all) : 0;
  int beyond = 0;
  for (int64_t task = 0; task < tasks; ++task) beyond |= copy_checked(&all, task);
  return beyond ? raise_of(&all) : 0;
}
