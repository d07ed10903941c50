/* Kernels of families: shapes of a call's arrays and pads are computed from its extents. */
#include "tvmconv-families.h"

enum { MOST_ARRAYS = 8, MOST_RANK = 5 };
#define MOST_ELEMENTS INT32_MAX

/* Computes the output's extents and the pads at the begin; returns 0 if the family does not have these extents. */
static int resolve(const struct family *family, const int64_t *extents, int64_t *output, int64_t *begin) {
  if (extents == NULL || output == NULL) return 0;
  for (int i = 0; i <= family->rank; ++i) {
    const struct extent *each = &family->extents[i];
    if (extents[i] < each->least || extents[i] > each->greatest || extents[i] % each->multiple != 0 ||
        extents[i] != extents[each->same])
      return 0;
  }
  output[0] = extents[0];
  for (int axis = 0; axis < family->rank; ++axis) {
    const int64_t input = extents[1 + axis], stride = family->strides[axis], span = family->spans[axis];
    int64_t end = family->pads_end[axis];
    begin[axis] = family->pads_begin[axis];
    if (family->pads == OWN) {
      begin[axis] = extents[1 + family->rank + axis];
      end = extents[1 + 2 * family->rank + axis];
    } else if (family->pads != FIXED) {
      int64_t both = ((input + stride - 1) / stride - 1) * stride + span - input;
      if (both < 0) both = 0;
      begin[axis] = family->pads == UPPER ? both / 2 : both - both / 2;
      end = both - begin[axis];
    }
    if (begin[axis] < 0 || begin[axis] > MOST_ELEMENTS || end > MOST_ELEMENTS || end < -MOST_ELEMENTS) return 0;
    const int64_t reach = family->transposed ? stride * (input - 1) + span : input + begin[axis] + end - span;
    if (reach < 0 || (!family->transposed && end < 0)) return 0;
    output[1 + axis] = family->transposed ? reach - begin[axis] - end : reach / stride + 1;
    if (output[1 + axis] < 1) return 0;
  }
  return 1;
}

int tvmconv_name_rt_output_extents(const struct family *family, const int64_t *extents, int64_t *output) {
  int64_t begin[MOST_AXES];
  return resolve(family, extents, output, begin) ? tvmconv_name_OK : tvmconv_name_ERROR_ARGUMENT;
}

int tvmconv_name_rt_run_family(const struct family *family, enum entry entry, const tvmconv_name_call *call,
                               const int64_t *extents, const void *const *arrays) {
  int64_t output[1 + MOST_AXES], begin[MOST_AXES], shapes[MOST_ARRAYS][MOST_RANK];
  if (!resolve(family, extents, output, begin)) return tvmconv_name_ERROR_ARGUMENT;
  struct argument arguments[MOST_ARRAYS];
  for (int i = 0; i <= family->kernel.inputs; ++i) {
    arguments[i] = family->kernel.arguments[i];
    if (i != 0 && i != family->residual && i != family->kernel.inputs) continue;
    /* Data, residual and output: the family has their channels, the call their other extents. */
    const int64_t *free = i == 0 ? extents : output, *shape = arguments[i].shape;
    const int first = family->channels_last ? 1 : 2, channels = family->channels_last ? family->rank + 1 : 1;
    shapes[i][0] = free[0];
    shapes[i][channels] = shape[channels];
    for (int axis = 0; axis < family->rank; ++axis) shapes[i][first + axis] = free[1 + axis];
    int64_t elements = 1;
    for (int axis = 0; axis < family->rank + 2; ++axis) {
      if (shapes[i][axis] != 0 && elements > MOST_ELEMENTS / shapes[i][axis]) return tvmconv_name_ERROR_ARGUMENT;
      elements *= shapes[i][axis];
    }
    arguments[i].shape = shapes[i];
    arguments[i].elements = (size_t)elements;
  }
  struct kernel kernel = family->kernel;
  kernel.arguments = arguments;
  kernel.numbers = begin;
  kernel.number_count = family->rank;
  return tvmconv_name_rt_run(&kernel, entry, call, arrays);
}
