/* Layers: kernels with their filters, biases and factors. */
#ifndef TVMCONV_LAYERS_H
#define TVMCONV_LAYERS_H

#include "tvmconv-runtime.h"

/* An array in the archive, or at an offset in the file of filters; none: NULL and 0. */
struct blob {
  const void *address;
  uint64_t offset;
};

/* `packed` has the filter for each of the kernel's variants; where there is none, `plain` is packed in each call. `others` are the
 * inputs after the filter; none: the residual, which the caller gives. */
struct layer {
  const struct kernel *kernel;
  const struct blob *packed;
  struct blob plain;
  const struct blob *others;
};

int tvmconv_name_rt_run_layer(const struct layer *layer, const tvmconv_name_call *call, const void *const *inputs,
                              void *output);
size_t tvmconv_name_rt_layer_workspace_bytes(const struct layer *layer, int threads);

/* The address of an array that there is, NULL if the file is not open. */
const void *tvmconv_name_rt_address(const struct blob *blob);

#endif
