/* Calls of onnxruntime's: its tensors and memory, and the kernels that they run. */
#ifndef TVMCONV_CALL_H
#define TVMCONV_CALL_H

#include "tvmconv-graph.h"

/* Bytes of the session's arena for one call, from a cache line on; they are to be given back, whatever became of them. */
struct block {
  ort_allocator *allocator;
  void *taken;
  char *begin;
};
ort_status *take_block(ort_context *context, const ort_memory *memory, size_t bytes, struct block *block);
/* Returns the status that is given, or what giving back the block says. */
ort_status *give_block(struct block *block, ort_status *status);
/* The data of a fused node's input, and its shape, if `found` is not NULL. A model may declare shapes that its tensors have not, and what
 * is compiled is for its shapes alone: an error if those of `what` are others, but for dims below 0, which are free. */
ort_status *read_input(ort_context *context, size_t number, int rank, const int64_t *dims, const char *what, void **data, int64_t *found);
ort_status *write_output(ort_context *context, size_t number, int rank, const int64_t *dims, void **data);

struct kernel;
/* Makes the function of a fused node: a graph of a convolution and its epilogue. */
ort_status *make_kernel(struct graph *graph, int threads, const ort_memory *memory, const ort_node *fused, struct kernel **kernel);
void free_kernel(struct kernel *kernel);
ort_status *run_kernel(const struct kernel *kernel, ort_context *context);

#endif
