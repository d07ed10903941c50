/* Declarations of kernels of families. */
#ifndef TVMCONV_FAMILIES_H
#define TVMCONV_FAMILIES_H

#include "tvmconv-runtime.h"

/* An extent: its range, what divides it, and which other it equals, or itself. */
struct extent {
  int64_t least, greatest, multiple;
  int same;
};

/* Pads: numbers; half of what outputs of input / stride take, the odd one at the end or at the begin; given in each call. */
enum pads { FIXED, UPPER, LOWER, OWN };

/* A family: a kernel whose shapes have channels alone; batch and then spatial extents; `residual` is which input that is, or 0. */
struct family {
  struct kernel kernel;
  int rank, channels_last, transposed, residual;
  const struct extent *extents;
  const int64_t *strides, *spans;
  enum pads pads;
  const int64_t *pads_begin, *pads_end;
};

int tvmconv_name_rt_output_extents(const struct family *family, const int64_t *extents, int64_t *output);
int tvmconv_name_rt_run_family(const struct family *family, enum entry entry, const tvmconv_name_call *call,
                               const int64_t *extents, const void *const *arrays);

#endif
