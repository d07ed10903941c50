/* Calls by onnxruntime: their tensors and memory, and the kernels that they run. */
#ifndef TVMCONV_CALL_H
#define TVMCONV_CALL_H

#include "tvmconv-graph.h"

/* Bytes of the session's arena for one call, aligned to a cache line; give_block must follow, even after an error. */
struct block {
  ort_allocator *allocator;
  void *taken;
  char *begin;
};
ort_status *take_block(ort_context *context, const ort_memory *memory, size_t bytes, struct block *block);
/* Releases a block; returns `status`, or if that is NULL the status of the release. */
ort_status *give_block(struct block *block, ort_status *status);
/* Finds the data of a fused node's input, and its shape, if `found` is not NULL. Returns an error that names `what` if the shape
 * differs from `dims`, where those below 0 are free: a model may declare wrong shapes, and code is compiled for the declared ones. */
ort_status *read_input(ort_context *context, size_t number, int rank, const int64_t *dims, const char *what, void **data, int64_t *found);
ort_status *write_output(ort_context *context, size_t number, int rank, const int64_t *dims, void **data);

struct kernel;
/* Makes the kernel of a fused node, whose graph is a convolution with its epilogue. */
ort_status *make_kernel(struct graph *graph, int threads, const ort_memory *memory, const ort_node *fused, struct kernel **kernel);
void free_kernel(struct kernel *kernel);
ort_status *run_kernel(const struct kernel *kernel, ort_context *context);

#endif
