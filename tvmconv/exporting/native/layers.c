/* Calls of layers. */
#include "tvmconv-layers.h"

static int is_there(const struct blob *blob) { return blob->address != NULL || blob->offset != 0; }

int tvmconv_name_rt_run_layer(const struct layer *layer, const tvmconv_name_call *call, const void *const *inputs,
                              void *output) {
  const struct kernel *kernel = layer->kernel;
  const struct variant *variant = tvmconv_name_rt_variant(kernel);
  if (variant == NULL) return tvmconv_name_ERROR_CPU;
  const struct blob *packed = &layer->packed[variant - kernel->variant];
  enum entry entry = is_there(packed) ? PACKED : PLAIN;
  const void *arrays[8];
  arrays[0] = inputs[0];
  arrays[1] = tvmconv_name_rt_address(entry == PACKED ? packed : &layer->plain);
  for (int i = 2; i < kernel->inputs; ++i) {
    const struct blob *other = &layer->others[i - 2];
    arrays[i] = is_there(other) ? tvmconv_name_rt_address(other) : inputs[1];
  }
  arrays[kernel->inputs] = output;
  if (arrays[1] == NULL) return tvmconv_name_ERROR_FILTERS;
  return tvmconv_name_rt_run(kernel, entry, call, arrays);
}

size_t tvmconv_name_rt_layer_workspace_bytes(const struct layer *layer, int threads) {
  const struct variant *variant = tvmconv_name_rt_variant(layer->kernel);
  if (variant == NULL) return 0;
  const struct blob *packed = &layer->packed[variant - layer->kernel->variant];
  return tvmconv_name_rt_workspace_bytes(layer->kernel, is_there(packed) ? PACKED : PLAIN, threads);
}
