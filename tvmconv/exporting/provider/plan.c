/* Plan of a claimed graph: operations on tensors, each in a place of one buffer. */
#include "tvmconv-plan.h"

#include <stdlib.h>
#include <string.h>

enum { LINE = tvmconv_name_ALIGNMENT };

struct maker {
  struct plan *plan;
  const struct graph *graph;
  const struct units *units;
  const ort_value_info **inputs, **outputs;
  size_t input_count, output_count;
  enum layout layout;
  int failed; /* there is no memory */
};

static size_t lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

static long number_of(const ort_value_info *const *values, size_t count, const char *name) {
  for (size_t i = 0; i < count; ++i)
    if (strcmp(name_of(values[i]), name) == 0) return (long)i;
  return -1;
}

static int add_value(struct maker *maker, const char *name, const struct extent *extent, enum home home, size_t number, int raw) {
  struct plan *plan = maker->plan;
  struct value *grown = realloc(plan->values, (size_t)(plan->value_count + 1) * sizeof *grown);
  if (grown == NULL) {
    maker->failed = 1;
    return 0;
  }
  plan->values = grown;
  size_t bytes = (size_t)(extent->batch * extent->channels * extent->pixels) * (extent->type == ORT_FLOAT ? 4 : 2);
  grown[plan->value_count] = (struct value){name, *extent, home, number, 0, lines(bytes), raw, plan->value_count, -1, -1, 0};
  return plan->value_count++;
}

/* An operation with room for so many arrays, of which the output is the last. */
static struct op *add_op(struct maker *maker, enum op_kind kind, int array_count, int output) {
  static struct op none;
  static int nowhere[1];
  struct plan *plan = maker->plan;
  struct op *grown = realloc(plan->ops, (size_t)(plan->op_count + 1) * sizeof *grown);
  int *arrays = calloc((size_t)array_count, sizeof *arrays);
  if (grown != NULL) plan->ops = grown;
  if (grown == NULL || arrays == NULL) {
    free(arrays);
    maker->failed = 1;
    none = (struct op){.arrays = nowhere};
    return &none;
  }
  const struct extent *extent = &plan->values[output].extent;
  struct op *op = &grown[plan->op_count++];
  *op = (struct op){.kind = kind, .type = extent->type, .array_count = array_count, .arrays = arrays, .batch = extent->batch,
                    .channels = extent->channels, .pixels = extent->pixels, .rows = extent->batch * extent->pixels};
  arrays[array_count - 1] = output;
  return op;
}

static int find_value(const struct maker *maker, const char *name, int raw) {
  for (int i = maker->plan->value_count; i-- > 0;)
    if (maker->plan->values[i].raw == raw && strcmp(maker->plan->values[i].name, name) == 0) return i;
  return -1;
}

/* Returns whether a tensor lies the same in both layouts. */
static int lies_as_given(const struct maker *maker, const struct extent *extent) {
  return maker->layout == CHANNELS_FIRST || extent->pixels == 1 || extent->channels == 1;
}

/* The value of a tensor that an operation reads, moved to the layout of kernels, or as onnxruntime has it. */
static int read_value(struct maker *maker, const ort_value_info *value, int raw) {
  const char *name = name_of(value);
  struct extent extent;
  int found = find_value(maker, name, raw);
  if (found >= 0) return found;
  long number = number_of(maker->inputs, maker->input_count, name);
  int known = read_extent(value, &extent);
  if (number < 0 || (!known && !raw)) {
    maker->failed = 1;
    return 0;
  }
  if (raw || lies_as_given(maker, &extent)) {
    found = add_value(maker, name, &extent, IN_INPUT, (size_t)number, raw);
    if (known) maker->plan->inputs[number] = extent;
    return found;
  }
  int given = find_value(maker, name, 1);
  if (given < 0) given = add_value(maker, name, &extent, IN_INPUT, (size_t)number, 1);
  maker->plan->inputs[number] = extent;
  int moved = add_value(maker, name, &extent, IN_BUFFER, 0, 0);
  add_op(maker, OP_TO_LAST, 2, moved)->arrays[0] = given;
  return moved;
}

/* The value of a tensor that an operation computes. */
static int write_value(struct maker *maker, const ort_value_info *value) {
  struct extent extent;
  const char *name = name_of(value);
  long number = number_of(maker->outputs, maker->output_count, name);
  if (!read_extent(value, &extent)) maker->failed = 1;
  if (number >= 0 && lies_as_given(maker, &extent)) return add_value(maker, name, &extent, IN_OUTPUT, (size_t)number, 0);
  return add_value(maker, name, &extent, IN_BUFFER, 0, 0);
}

/* After the operation that computes a value: gives it to onnxruntime, if that reads it. */
static void give(struct maker *maker, int value) {
  struct value made = maker->plan->values[value];
  long number = number_of(maker->outputs, maker->output_count, made.name);
  if (maker->failed || number < 0 || made.home != IN_BUFFER) return;
  int given = add_value(maker, made.name, &made.extent, IN_OUTPUT, (size_t)number, 1);
  struct op *op = add_op(maker, OP_TO_FIRST, 2, given);
  op->arrays[0] = value;
}

/* The fixed numbers of each channel, of which there may be one for all. */
static float *by_channel(struct maker *maker, const ort_value_info *value, int64_t channels) {
  size_t count = 0;
  float *numbers = fixed_numbers(value, (size_t)channels, &count), *spread = allocate((size_t)channels * sizeof *spread);
  for (int64_t i = 0; numbers != NULL && spread != NULL && i < channels; ++i) spread[i] = numbers[count == 1 ? 0 : i];
  if (numbers == NULL || spread == NULL) maker->failed = 1;
  free(numbers);
  return spread;
}

static void put_channels_last(const ort_value_info *value, const char *from, char *to) {
  struct extent e;
  if (!read_extent(value, &e)) return;
  size_t size = e.type == ORT_FLOAT ? 4 : 2;
  for (int64_t n = 0; n < e.batch; ++n)
    for (int64_t c = 0; c < e.channels; ++c)
      for (int64_t p = 0; p < e.pixels; ++p)
        memcpy(to + (size_t)((n * e.pixels + p) * e.channels + c) * size, from + (size_t)((n * e.channels + c) * e.pixels + p) * size, size);
}

/* Keeps the fixed inputs of a kernel: the filter packed, the bias with what is folded into it. Returns NULL if it is not fixed. */
static void *fixed_input(struct maker *maker, const struct match *match, enum operand what, const tvmconv_name_array *array) {
  const ort_value_info *value = match->operands[what];
  if (what == SCALES || what == SLOPE) return by_channel(maker, value, (int64_t)array->elements);
  const void *data = fixed_data(value);
  if (data == NULL && !(what == BIAS && match->fold_count > 0)) return NULL;
  void *copy = allocate(array->bytes);
  if (copy == NULL) maker->failed = 1;
  if (copy == NULL) return NULL;
  if (what == BIAS && match->fold_count > 0) {
    if (!folded(maker->graph, match, NULL, copy)) maker->failed = 1;
    return copy;
  }
  memcpy(copy, data, array->bytes);
  if ((what == DATA || what == RESIDUAL) && maker->layout == CHANNELS_LAST) put_channels_last(value, data, copy);
  if (what != FILTER) return copy;
  void *packed = allocate(match->kernel->packed_bytes());
  if (packed == NULL || (match->fold_count > 0 && !folded(maker->graph, match, copy, NULL)) ||
      match->kernel->pack(copy, packed) != tvmconv_name_OK)
    maker->failed = 1;
  free(copy);
  return packed;
}

static void add_kernel(struct maker *maker, const struct match *match) {
  static const char *const names[] = {"data", "filter", "bias", "scale", "slope", "residual"};
  const tvmconv_name_kernel *kernel = match->kernel;
  int values[OPERANDS], count = 0, packed = 0;
  void *fixed[OPERANDS] = {NULL};
  for (int i = 0; i < kernel->inputs; ++i) {
    enum operand what = DATA;
    while (strcmp(names[what], kernel->arrays[i].name) != 0) ++what;
    fixed[i] = fixed_input(maker, match, what, &kernel->arrays[i]);
    packed |= what == FILTER && fixed[i] != NULL;
    if (fixed[i] == NULL && !maker->failed) values[count++] = read_value(maker, match->operands[what], what == FILTER || what == BIAS);
  }
  int output = write_value(maker, match->output);
  struct op *op = maker->failed ? NULL : add_op(maker, OP_KERNEL, count + 1, output);
  if (maker->failed) {
    for (int i = 0; i < OPERANDS; ++i) free(fixed[i]);
    return;
  }
  op->kernel = kernel;
  op->packed = packed;
  memcpy(op->fixed, fixed, sizeof fixed);
  memcpy(op->arrays, values, (size_t)count * sizeof *values);
  size_t bytes = lines((packed ? kernel->packed_workspace_bytes : kernel->workspace_bytes)(maker->plan->threads));
  if (bytes > maker->plan->workspace) maker->plan->workspace = bytes;
  give(maker, output);
}

/* A normalization, a product with or a sum of fixed numbers as factors and terms. */
static void fix_step(struct maker *maker, const struct mapped *mapped, int64_t channels, struct map_step *step) {
  const struct node *node = &maker->graph->nodes[mapped->node];
  *step = mapped->step;
  if (step->kind == SLOPED) step->factors = by_channel(maker, mapped->other, channels);
  if (step->kind != AFFINE) return;
  step->factors = allocate((size_t)channels * sizeof *step->factors);
  step->terms = allocate((size_t)channels * sizeof *step->terms);
  if (step->factors == NULL || step->terms == NULL || !affine(node, mapped->other, channels, step->factors, step->terms)) maker->failed = 1;
}

static void add_map(struct maker *maker, const struct unit *unit) {
  int values[MOST_STEPS + 1] = {read_value(maker, unit->input, 0)}, count = 1;
  struct map_step *steps = calloc((size_t)unit->step_count, sizeof *steps);
  if (steps == NULL) maker->failed = 1;
  for (int i = 0; i < unit->step_count && steps != NULL; ++i) {
    fix_step(maker, &unit->steps[i], maker->plan->values[values[0]].extent.channels, &steps[i]);
    if (steps[i].kind == FUNCTION || steps[i].kind == AFFINE || steps[i].kind == SLOPED) continue;
    steps[i].operand = count;
    values[count++] = read_value(maker, unit->steps[i].other, 0);
  }
  int output = write_value(maker, unit->output);
  struct op *op = maker->failed ? NULL : add_op(maker, OP_MAP, count + 1, output);
  if (maker->failed) {
    for (int i = 0; i < unit->step_count && steps != NULL; ++i) {
      free(steps[i].factors);
      free(steps[i].terms);
    }
    free(steps);
    return;
  }
  memcpy(op->arrays, values, (size_t)count * sizeof *values);
  op->steps = steps;
  op->step_count = unit->step_count;
  give(maker, output);
}

static void add_join(struct maker *maker, const struct unit *unit) {
  const struct node *node = &maker->graph->nodes[unit->nodes[0]];
  int count = (int)node->input_count, *values = calloc((size_t)count + 1, sizeof *values);
  int64_t *parts = calloc((size_t)count + 1, sizeof *parts);
  if (values == NULL || parts == NULL) maker->failed = 1;
  for (int i = 0; i < count && !maker->failed; ++i) {
    values[i] = read_value(maker, node->inputs[i], 0);
    parts[i] = maker->plan->values[values[i]].extent.channels;
  }
  int output = maker->failed ? 0 : write_value(maker, unit->output);
  struct op *op = maker->failed ? NULL : add_op(maker, OP_JOIN, count + 1, output);
  if (op != NULL && !maker->failed) {
    memcpy(op->arrays, values, (size_t)count * sizeof *values);
    op->parts = parts;
    give(maker, output);
  } else {
    free(parts);
  }
  free(values);
}

/* Some channels of a tensor, or all. */
static void add_part(struct maker *maker, int from, const ort_value_info *output, int64_t first) {
  int to = write_value(maker, output);
  if (maker->failed) return;
  struct op *op = add_op(maker, OP_PART, 2, to);
  op->arrays[0] = from;
  op->from = first;
  give(maker, to);
}

static void add_parts(struct maker *maker, const struct unit *unit) {
  const struct node *node = &maker->graph->nodes[unit->nodes[0]];
  int from = read_value(maker, unit->input, 0);
  int64_t first = unit->groups;
  for (size_t i = 0; i < node->output_count && !maker->failed; ++i) {
    struct extent extent;
    read_extent(node->outputs[i], &extent);
    add_part(maker, from, node->outputs[i], first);
    first += extent.channels;
  }
}

/* The same numbers under another name: where onnxruntime reads them, a copy, else the same memory. */
static void add_same(struct maker *maker, const struct unit *unit) {
  int from = read_value(maker, unit->input, 0);
  if (number_of(maker->outputs, maker->output_count, name_of(unit->output)) >= 0) {
    add_part(maker, from, unit->output, 0);
    return;
  }
  int to = write_value(maker, unit->output);
  if (maker->failed) return;
  struct value *value = &maker->plan->values[to], *source = &maker->plan->values[from];
  value->alias = source->alias;
  value->home = source->home;
  value->number = source->number;
}

static void in_three_axes(struct problem *w) {
  while (w->rank < AXES) {
    for (int i = AXES - 1; i > 0; --i) {
      w->in[i] = w->in[i - 1], w->out[i] = w->out[i - 1], w->taps[i] = w->taps[i - 1], w->strides[i] = w->strides[i - 1];
      w->dilations[i] = w->dilations[i - 1], w->begin[i] = w->begin[i - 1], w->end[i] = w->end[i - 1];
    }
    w->in[0] = w->out[0] = w->taps[0] = w->strides[0] = w->dilations[0] = 1;
    w->begin[0] = w->end[0] = 0;
    ++w->rank;
  }
}

static void add_simple(struct maker *maker, const struct unit *unit) {
  static const enum op_kind kinds[] = {[POOL] = OP_POOL, [REDUCE] = OP_REDUCE, [SHUFFLE] = OP_SHUFFLE, [STRETCH] = OP_STRETCH, [ACROSS] = OP_ACROSS};
  int from = read_value(maker, unit->input, 0), to = write_value(maker, unit->output);
  if (maker->failed) return;
  struct op *op = add_op(maker, kinds[unit->kind], 2, to);
  op->arrays[0] = from;
  op->window = unit->window;
  op->pooling = unit->pooling;
  op->groups = unit->groups;
  op->alpha = unit->alpha, op->beta = unit->beta, op->bias = unit->bias;
  in_three_axes(&op->window);
  if (unit->kind == POOL || unit->kind == STRETCH) op->rows = op->batch * op->window.out[0] * op->window.out[1];
  if (unit->kind == REDUCE) {
    op->from = maker->plan->values[from].extent.pixels;
    op->rows = op->batch * reduced_rows(op->channels);
  }
  give(maker, to);
}

static void add_units(struct maker *maker) {
  for (size_t i = 0; i < maker->units->count && !maker->failed; ++i) {
    const struct unit *unit = &maker->units->list[i];
    switch (unit->kind) {
      case KERNEL: add_kernel(maker, unit->match); break;
      case MAP: add_map(maker, unit); break;
      case JOIN: add_join(maker, unit); break;
      case PART: add_parts(maker, unit); break;
      case SAME: add_same(maker, unit); break;
      default: add_simple(maker, unit); break;
    }
  }
}

ort_status *make_plan(struct graph *graph, enum layout layout, int threads, const ort_node *fused, struct plan **result) {
  struct units units = {0};
  struct plan *plan = calloc(1, sizeof *plan);
  struct maker maker = {.plan = plan, .graph = graph, .units = &units, .layout = layout};
  ort_status *status = NULL;
  maker.inputs = values_of(fused, ort.input_count, ort.inputs, &maker.input_count);
  maker.outputs = values_of(fused, ort.output_count, ort.outputs, &maker.output_count);
  graph->kept = maker.outputs;
  graph->kept_count = maker.output_count;
  if (plan == NULL || maker.inputs == NULL || maker.outputs == NULL ||
      (plan->inputs = calloc(maker.input_count + 1, sizeof *plan->inputs)) == NULL || !read_units(graph, layout, &units))
    status = fail(ORT_FAIL, "out of memory, or onnxruntime lists nodes in no order");
  for (size_t i = 0; i < units.count && status == NULL; ++i)
    if (units.list[i].kind == OTHER) status = fail(ORT_EP_FAIL, "onnxruntime changed a graph after it was claimed; please report it");
  if (status == NULL) {
    plan->threads = threads;
    add_units(&maker);
    if (maker.failed) status = fail(ORT_FAIL, "out of memory, or onnxruntime does not give a fused node all that it reads");
  }
  if (status == NULL) {
    share_concatenations(plan);
    place_values(plan);
  }
  free(maker.inputs);
  free(maker.outputs);
  graph->kept = NULL;
  graph->kept_count = 0;
  free_units(&units);
  if (status != NULL)
    free_plan(plan);
  else
    *result = plan;
  return status;
}

void free_plan(struct plan *plan) {
  for (int i = 0; plan != NULL && i < plan->op_count; ++i) {
    struct op *op = &plan->ops[i];
    for (int k = 0; k < op->step_count; ++k) {
      free(op->steps[k].factors);
      free(op->steps[k].terms);
    }
    for (int k = 0; k < OPERANDS; ++k) free(op->fixed[k]);
    free(op->steps);
    free(op->parts);
    free(op->arrays);
  }
  if (plan != NULL) {
    free(plan->ops);
    free(plan->values);
    free(plan->inputs);
  }
  free(plan);
}
