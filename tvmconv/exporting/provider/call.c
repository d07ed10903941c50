/* Tensors and memory of a call by onnxruntime. */
#include "tvmconv-call.h"

ort_status *read_input(ort_context *context, size_t number, int rank, const int64_t *dims, const char *what, void **data, int64_t *given) {
  const ort_value *value = NULL;
  ort_shape *shape = NULL;
  int64_t found[rank > 0 ? rank : 1];
  size_t found_rank = 0;
  ort_status *status = ort.context_input(context, number, &value);
  if (status == NULL && value == NULL) status = fail(ORT_EP_FAIL, "onnxruntime gives no tensor for an input");
  if (status == NULL) status = ort.tensor_shape(value, &shape);
  if (status == NULL) status = ort.rank(shape, &found_rank);
  int right = found_rank == (size_t)rank;
  if (status == NULL && right && rank > 0) status = ort.dims(shape, found, found_rank);
  if (shape != NULL) ort.release_shape(shape);
  for (int i = 0; status == NULL && right && i < rank; ++i) right = dims[i] < 0 || found[i] == dims[i];
  if (status == NULL && right && given != NULL) memcpy(given, found, (size_t)rank * sizeof *given);
  if (status == NULL && !right)
    status = fail(ORT_INVALID_ARGUMENT, "the data of %s has another shape than the model declares for it", what);
  return status != NULL ? status : ort.tensor_data((ort_value *)(uintptr_t)value, data);
}

ort_status *write_output(ort_context *context, size_t number, int rank, const int64_t *dims, void **data) {
  ort_value *output = NULL;
  ort_status *status = ort.context_output(context, number, dims, (size_t)rank, &output);
  return status != NULL ? status : ort.tensor_data(output, data);
}

ort_status *take_block(ort_context *context, const ort_memory *memory, size_t bytes, struct block *block) {
  const uintptr_t alignment = tvmconv_name_ALIGNMENT;
  *block = (struct block){0};
  ort_status *status = ort.context_allocator(context, memory, &block->allocator);
  if (status == NULL) status = ort.allocate(block->allocator, bytes + alignment, &block->taken);
  if (status == NULL) block->begin = (char *)(((uintptr_t)block->taken + alignment - 1) / alignment * alignment);
  return status;
}

ort_status *give_block(struct block *block, ort_status *status) {
  ort_status *after = block->taken != NULL ? ort.release(block->allocator, block->taken) : NULL;
  if (block->allocator != NULL) ort.release_allocator(block->allocator);
  if (status == NULL) return after;
  good(after);
  return status;
}
