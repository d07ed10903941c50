/* Free extents of a network. */
#ifndef TVMCONV_EXTENTS_H
#define TVMCONV_EXTENTS_H

#include <stdint.h>
#include <stdio.h>

/* Returns whether an extent is from `least` to `greatest` and a multiple of `multiple`; else writes an error message into `text`. */
static inline int takes_extent(const char *name, int64_t least, int64_t greatest, int64_t multiple, int64_t given, char *text, size_t size) {
  const long long extent = given, factor = multiple, rest = given % multiple;
  if (given < least || given > greatest)
    snprintf(text, size, "extent %s is %lld; it must be from %lld to %lld", name, extent, (long long)least, (long long)greatest);
  else if (rest != 0)
    snprintf(text, size, "extent %s is %lld, no multiple of %lld; pad it by %lld to %lld", name, extent, factor, factor - rest, extent + factor - rest);
  else
    return 1;
  return 0;
}

#endif
