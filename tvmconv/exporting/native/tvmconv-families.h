/* Declarations of kernels of families. */
#ifndef TVMCONV_FAMILIES_H
#define TVMCONV_FAMILIES_H

#include "tvmconv-runtime.h"

/* An extent: its range, its divisor, and the number of the extent that it must equal (or its own). */
struct extent {
  int64_t least, greatest, multiple;
  int same;
};

/* Pads: fixed; ONNX's SAME_UPPER and SAME_LOWER; or given in each call. */
enum pads { FIXED, UPPER, LOWER, OWN };

/* A family: a kernel whose shapes have only the channels set; extents of batch and space; `residual`: that input's number, or 0. */
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
