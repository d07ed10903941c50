/* Runs kernels, each as one node of onnxruntime's, on the threads of its session. */
#include <stdlib.h>

#include "tvmconv-call.h"

/* Operand of a kernel: constant data, or an input of the node with its shape. */
struct operand {
  void *fixed;
  size_t number;
  int rank;
  int64_t dims[AXES + 2];
};
struct kernel {
  const tvmconv_name_kernel *kernel;
  struct operand operands[OPERANDS]; /* of the kernel's inputs */
  int packed, rank, threads;
  int64_t dims[AXES + 2]; /* of the output */
  size_t workspace;
  const ort_memory *memory;
};

static void *allocate(size_t bytes) {
  const size_t line = tvmconv_name_ALIGNMENT;
  return aligned_alloc(line, (bytes + line) / line * line);
}

/* Returns constants of each channel, with a single one repeated. */
static float *by_channel(const ort_value_info *value, size_t channels) {
  size_t count = 0;
  float *numbers = fixed_numbers(value, channels, &count), *spread = allocate(channels * sizeof *spread);
  for (size_t i = 0; numbers != NULL && spread != NULL && i < channels; ++i) spread[i] = numbers[count == 1 ? 0 : i];
  if (numbers == NULL) {
    free(spread);
    spread = NULL;
  }
  free(numbers);
  return spread;
}

/* Returns whether an operand is known at compile time: a constant, or a bias that nodes are folded into. */
static int is_fixed(const struct match *match, enum operand_kind what) {
  return what == SCALES || what == SLOPE || (what == BIAS && match->fold_count > 0) || fixed_data(match->operands[what]) != NULL;
}

/* Returns a kernel's constant input: the packed filter, the bias after folding. NULL: there is no memory. */
static void *fixed_input(const struct graph *graph, const struct match *match, enum operand_kind what, const tvmconv_name_array *array) {
  const ort_value_info *value = match->operands[what];
  if (what == SCALES || what == SLOPE) return by_channel(value, (size_t)array->elements);
  char *copy = allocate(array->bytes), *packed = NULL;
  if (copy == NULL) return NULL;
  if (what == BIAS && match->fold_count > 0) {
    if (folded(graph, match, NULL, (float *)copy)) return copy;
  } else {
    memcpy(copy, fixed_data(value), array->bytes);
    if (what != FILTER) return copy;
    packed = allocate(match->kernel->packed_bytes());
    if (packed != NULL && ((match->fold_count > 0 && !folded(graph, match, (float *)copy, NULL)) ||
                           match->kernel->pack(copy, packed) != tvmconv_name_OK)) {
      free(packed);
      packed = NULL;
    }
  }
  free(copy);
  return packed;
}

/* Fills an operand; returns 0 if there is no memory, or the node has no such input. */
static int fill(const struct graph *graph, const struct match *match, enum operand_kind what, const tvmconv_name_array *array,
                const ort_value_info *const *inputs, size_t count, struct operand *operand) {
  int type = 0;
  if (is_fixed(match, what)) return (operand->fixed = fixed_input(graph, match, what, array)) != NULL;
  operand->rank = shape_of(match->operands[what], &type, operand->dims, AXES + 2);
  while (operand->number < count && strcmp(name_of(inputs[operand->number]), name_of(match->operands[what])) != 0) ++operand->number;
  return operand->number < count;
}

static int fill_all(const struct graph *graph, const struct match *match, const ort_value_info *const *inputs, size_t count, struct kernel *made) {
  static const char *const names[] = {"data", "filter", "bias", "scale", "slope", "residual"};
  const tvmconv_name_kernel *kernel = made->kernel;
  int fine = inputs != NULL, type = 0;
  for (int i = 0; fine && i < kernel->inputs; ++i) {
    enum operand_kind what = DATA;
    while (strcmp(names[what], kernel->arrays[i].name) != 0) ++what;
    fine = fill(graph, match, what, &kernel->arrays[i], inputs, count, &made->operands[i]);
    made->packed |= what == FILTER && made->operands[i].fixed != NULL;
  }
  made->rank = shape_of(match->output, &type, made->dims, AXES + 2);
  return fine;
}

ort_status *make_kernel(struct graph *graph, int threads, const ort_memory *memory, const ort_node *fused, struct kernel **result) {
  struct matches matches = {0};
  size_t count = 0;
  const ort_value_info **inputs = values_of(fused, ort.input_count, ort.inputs, &count);
  graph->kept = values_of(fused, ort.output_count, ort.outputs, &graph->kept_count);
  struct kernel *made = calloc(1, sizeof *made);
  ort_status *status = NULL;
  if (made == NULL || graph->kept == NULL || !find_matches(graph, &matches)) {
    status = fail(ORT_FAIL, "out of memory");
  } else if (matches.count != 1 || (size_t)matches.list->node_count != graph->count) {
    status = fail(ORT_EP_FAIL, "onnxruntime changed a graph after it was claimed; please report it");
  } else {
    made->kernel = matches.list->kernel;
    made->threads = threads;
    made->memory = memory;
    if (!fill_all(graph, matches.list, inputs, count, made))
      status = fail(ORT_FAIL, "out of memory, or onnxruntime does not give a fused node all that it reads");
    made->workspace = (made->packed ? made->kernel->packed_workspace_bytes : made->kernel->workspace_bytes)(threads);
  }
  free(inputs);
  free(graph->kept);
  graph->kept = NULL;
  graph->kept_count = 0;
  free(matches.list);
  if (status != NULL)
    free_kernel(made);
  else
    *result = made;
  return status;
}

void free_kernel(struct kernel *kernel) {
  for (int i = 0; kernel != NULL && i < OPERANDS; ++i) free(kernel->operands[i].fixed);
  free(kernel);
}

struct loop {
  void (*task)(void *argument, int index);
  void *argument;
};

static void run_task(void *given, size_t index) {
  const struct loop *loop = given;
  loop->task(loop->argument, (int)index);
}

static int parallel_for(void *context, int count, void (*task)(void *argument, int index), void *argument) {
  struct loop loop = {task, argument};
  return good(ort.parallel_for(context, run_task, (size_t)count, 0, &loop)) ? 0 : -1;
}

ort_status *run_kernel(const struct kernel *kernel, ort_context *context) {
  const void *inputs[OPERANDS];
  void *output = NULL;
  struct block block = {0};
  ort_status *status = kernel->workspace > 0 ? take_block(context, kernel->memory, kernel->workspace, &block) : NULL;
  for (int i = 0; i < kernel->kernel->inputs && status == NULL; ++i) {
    const struct operand *each = &kernel->operands[i];
    void *data = each->fixed;
    if (data == NULL) status = read_input(context, each->number, each->rank, each->dims, "a convolution", &data, NULL);
    inputs[i] = data;
  }
  if (status == NULL) status = write_output(context, 0, kernel->rank, kernel->dims, &output);
  if (status == NULL) {
    tvmconv_name_call call = {parallel_for, context, kernel->threads, block.begin, kernel->workspace};
    int failed = (kernel->packed ? kernel->kernel->run_packed : kernel->kernel->run)(&call, inputs, output);
    if (failed != tvmconv_name_OK) status = fail(ORT_EP_FAIL, "%s", tvmconv_name_error_string(failed));
  }
  return give_block(&block, status);
}
