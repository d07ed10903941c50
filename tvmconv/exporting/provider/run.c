/* Runs a plan on the threads of onnxruntime's session, in memory of its arena. */
#include "tvmconv-plan.h"

#include <string.h>

/* Less than this is not worth waking threads. */
enum { LEAST_BYTES = 1 << 15 };

typedef void rows_function(const struct op *op, char *const *arrays, int64_t begin, int64_t end);

static rows_function *rows_of_this_cpu(void) {
#define TAKE(level) \
  if (HAS_##level) return tvmconv_name_rt_rows_##level;
  LEVELS(TAKE)
  return NULL; /* the last level is there */
}

/* A loop of a kernel's, or the rows of an operation, cut into equal tasks. */
struct loop {
  void (*task)(void *argument, int index);
  void *argument;
};
struct share {
  const struct op *op;
  char *const *arrays;
  rows_function *compute;
  int count;
};

static void run_task(void *given, size_t index) {
  const struct loop *loop = given;
  loop->task(loop->argument, (int)index);
}

static int parallel_for(void *context, int count, void (*task)(void *argument, int index), void *argument) {
  struct loop loop = {task, argument};
  return good(ort.parallel_for(context, run_task, (size_t)count, 0, &loop)) ? 0 : -1;
}

static void run_share(void *given, int index) {
  const struct share *share = given;
  int64_t rows = share->op->rows;
  share->compute(share->op, share->arrays, rows * index / share->count, rows * (index + 1) / share->count);
}

static ort_status *run_rows(const struct op *op, char *const *arrays, int threads, ort_context *context) {
  struct share share = {op, arrays, rows_of_this_cpu(), threads};
  if (op->rows < share.count) share.count = (int)op->rows;
  if (share.count < 2 || op->batch * op->channels * op->pixels * 4 < LEAST_BYTES) {
    share.compute(op, arrays, 0, op->rows);
    return NULL;
  }
  return parallel_for(context, share.count, run_share, &share) == 0 ? NULL : fail(ORT_EP_FAIL, "onnxruntime's threads failed");
}

static ort_status *run_kernel(const struct op *op, char *const *arrays, const tvmconv_name_call *call) {
  const void *inputs[OPERANDS];
  int next = 0;
  for (int i = 0; i < op->kernel->inputs; ++i) inputs[i] = op->fixed[i] != NULL ? op->fixed[i] : arrays[next++];
  int failed = (op->packed ? op->kernel->run_packed : op->kernel->run)(call, inputs, arrays[next]);
  return failed == tvmconv_name_OK ? NULL : fail(ORT_EP_FAIL, "%s", tvmconv_name_error_string(failed));
}

ort_status *read_input(ort_context *context, size_t number, int rank, const int64_t *dims, const char *what, void **data) {
  const ort_value *value = NULL;
  ort_shape *shape = NULL;
  int64_t found[rank > 0 ? rank : 1];
  size_t found_rank = 0;
  ort_status *status = ort.context_input(context, number, &value);
  if (status == NULL && value == NULL) status = fail(ORT_EP_FAIL, "onnxruntime gives no tensor for an input");
  if (status == NULL && rank >= 0) {
    status = ort.tensor_shape(value, &shape);
    if (status == NULL) status = ort.rank(shape, &found_rank);
    int right = found_rank == (size_t)rank;
    if (status == NULL && right && rank > 0) status = ort.dims(shape, found, found_rank);
    if (shape != NULL) ort.release_shape(shape);
    if (status == NULL && !(right && memcmp(found, dims, found_rank * sizeof *dims) == 0))
      status = fail(ORT_INVALID_ARGUMENT, "the data of %s has another shape than the model declares for it", what);
  }
  return status != NULL ? status : ort.tensor_data((ort_value *)(uintptr_t)value, data);
}

static ort_status *find_arrays(const struct plan *plan, ort_context *context, char *buffer, char **arrays) {
  ort_status *status = NULL;
  for (int i = 0; i < plan->value_count && status == NULL; ++i) {
    const struct value *value = &plan->values[i];
    void *data = buffer + value->offset;
    ort_value *output = NULL;
    if (value->home == IN_INPUT) {
      const struct extent *wanted = &plan->inputs[value->number];
      status = read_input(context, value->number, wanted->rank > 0 ? wanted->rank : -1, wanted->dims, "a convolution", &data);
    }
    if (value->home == IN_OUTPUT) {
      status = ort.context_output(context, value->number, value->extent.dims, (size_t)value->extent.rank, &output);
      if (status == NULL) status = ort.tensor_data(output, &data);
    }
    arrays[i] = data;
  }
  return status;
}

static ort_status *run_ops(const struct plan *plan, ort_context *context, char *const *arrays, const tvmconv_name_call *call) {
  ort_status *status = NULL;
  for (int i = 0; i < plan->op_count && status == NULL; ++i) {
    const struct op *op = &plan->ops[i];
    char *taken[op->array_count];
    for (int k = 0; k < op->array_count; ++k) taken[k] = arrays[op->arrays[k]];
    status = op->kind == OP_KERNEL ? run_kernel(op, taken, call) : run_rows(op, taken, plan->threads, context);
  }
  return status;
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

ort_status *run_plan(const struct plan *plan, const ort_memory *memory, ort_context *context) {
  const size_t bytes = plan->buffer + plan->workspace;
  struct block block = {0};
  char *arrays[plan->value_count + 1];
  ort_status *status = bytes > 0 ? take_block(context, memory, bytes, &block) : NULL;
  if (status == NULL) status = find_arrays(plan, context, block.begin, arrays);
  tvmconv_name_call call = {parallel_for, context, plan->threads, plan->workspace > 0 ? block.begin + plan->buffer : NULL, plan->workspace};
  if (status == NULL) status = run_ops(plan, context, arrays, &call);
  return give_block(&block, status);
}
