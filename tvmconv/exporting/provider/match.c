/* Matching of a convolution, and as many of the following nodes as possible, with a kernel. */
#include "tvmconv-graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t at_least(int64_t value, int64_t least) { return value > least ? value : least; }

/* Computes the output of one axis of a convolution, in tvmconv.problem's canonical form; returns 0 if its numbers contradict. */
static int forward_axis(struct problem *p, int i) {
  int64_t taken = p->dilations[i] * (p->taps[i] - 1) + 1, padded = p->in[i] + p->begin[i] + p->end[i];
  if (taken > padded) return 0;
  p->out[i] = (padded - taken) / p->strides[i] + 1;
  p->end[i] = at_least((p->out[i] - 1) * p->strides[i] + taken - p->begin[i] - p->in[i], 0);
  if (p->out[i] == 1) p->strides[i] = p->begin[i] + p->end[i] + p->in[i] - taken + 1;
  return 1;
}

static int transposed_axis(struct problem *p, int i, int64_t extra) {
  int64_t whole = p->strides[i] * (p->in[i] - 1) + p->dilations[i] * (p->taps[i] - 1) + 1;
  p->out[i] = whole - p->begin[i] - p->end[i] + extra;
  p->end[i] = at_least(whole - p->begin[i] - p->out[i], 0);
  if (p->in[i] == 1) p->strides[i] = 1;
  return p->out[i] >= 1;
}

/* Resolves auto_pad and output_shape by onnxruntime's rules (tvmconv.frontends.onnx.rules). Returns NULL, or why it cannot. */
static const char *resolve_pads(const struct node *node, struct problem *p, int64_t *extra) {
  char mode[16];
  int64_t pads[2 * AXES], wanted[AXES];
  int given = text_attribute(node, "auto_pad", mode, sizeof mode);
  int same = given == 1 && strncmp(mode, "SAME_", 5) == 0, upper = same && strcmp(mode, "SAME_UPPER") == 0;
  int explicit = given == 0 || strcmp(mode, "NOTSET") == 0;
  if (given < 0 || !(same || explicit || strcmp(mode, "VALID") == 0)) return "its auto_pad is unknown";
  int sizes = p->transposed ? integers_attribute(node, "output_shape", wanted, AXES) : -1;
  if (sizes == 0) sizes = -1;
  if (sizes != -1 && sizes != p->rank) return "its output_shape has another number of axes";
  if (explicit && sizes == -1) {
    int count = integers_attribute(node, "pads", pads, 2 * AXES);
    if (count > 0 && count != 2 * p->rank) return "its pads have another number of axes";
    for (int i = 0; i < p->rank && count > 0; ++i) {
      p->begin[i] = pads[i];
      p->end[i] = pads[p->rank + i];
      if (pads[i] < 0 || pads[p->rank + i] < 0) return "it has negative pads";
    }
    return NULL;
  }
  for (int i = 0; i < p->rank && (same || sizes != -1); ++i) {
    int64_t taken = p->dilations[i] * (p->taps[i] - 1) + 1, total;
    if (p->transposed) {
      int64_t whole = p->strides[i] * (p->in[i] - 1) + taken, padded = whole + extra[i];
      int64_t target = sizes != -1 ? wanted[i] : p->in[i] * p->strides[i];
      total = at_least(padded - target, 0);
      if (sizes == -1) target = padded - total;
      p->begin[i] = upper ? total / 2 : total - total / 2;
      int64_t end = whole - p->begin[i] - target;
      p->end[i] = at_least(end, 0);
      extra[i] = at_least(-end, 0);
    } else {
      total = ((p->in[i] + p->strides[i] - 1) / p->strides[i] - 1) * p->strides[i] + taken - p->in[i];
      if (total <= -3) return "systems differ in what SAME means with strides as large";
      total = at_least(total, 0);
      p->begin[i] = upper ? total / 2 : total - total / 2;
      p->end[i] = total - p->begin[i];
    }
  }
  return NULL;
}

static int read_axes(const struct node *node, const char *name, int64_t *values, int rank, int64_t none, int64_t least) {
  int count = integers_attribute(node, name, values, AXES);
  for (int i = 0; i < rank && count <= 0; ++i) values[i] = none;
  if (count > 0 && count != rank) return 0;
  for (int i = 0; i < rank; ++i)
    if (values[i] < least) return 0;
  return count >= -1;
}

/* Reads the problem of a convolution without epilogue. Returns NULL, or why no kernel computes it. */
static const char *read_problem(const struct node *node, struct problem *p) {
  int64_t data[AXES + 2], filter[AXES + 2], bias[AXES + 2], output[AXES + 2], extra[AXES] = {0};
  int type = 0, filter_type = 0, bias_type = 0;
  memset(p, 0, sizeof *p);
  if (node->input_count < 2 || node->output_count < 1) return "it lacks an input";
  int rank = shape_of(node->inputs[0], &type, data, AXES + 2);
  if (rank < 3 || shape_of(node->inputs[1], &filter_type, filter, AXES + 2) != rank)
    return "the shape of its data or filter is not known before it runs";
  for (int i = 0; i < rank; ++i)
    if (data[i] < 0 || filter[i] < 0) return "the shape of its data or filter is not known before it runs";
  p->bias = node->input_count > 2 && node->inputs[2] != NULL;
  p->type = type;
  if (filter_type != type || (p->bias && shape_of(node->inputs[2], &bias_type, bias, 1) != 1) || (p->bias && bias_type != type))
    return "its filter or bias is of another type or rank than it should";
  p->transposed = strcmp(node->type, "ConvTranspose") == 0;
  p->rank = rank - 2;
  p->groups = integer_attribute(node, "group", 1);
  p->batch = data[0];
  p->in_channels = data[1];
  if (p->groups < 1) return "its group is below 1";
  p->out_channels = p->transposed ? filter[1] * p->groups : filter[0];
  if (p->in_channels != (p->transposed ? filter[0] : filter[1] * p->groups) || p->out_channels % p->groups != 0 ||
      (p->bias && bias[0] != p->out_channels))
    return "its channels contradict each other";
  if (!read_axes(node, "strides", p->strides, p->rank, 1, 1) || !read_axes(node, "dilations", p->dilations, p->rank, 1, 1) ||
      (p->transposed && !read_axes(node, "output_padding", extra, p->rank, 0, 0)))
    return "its strides, dilations or output_padding are out of range";
  for (int i = 0; i < p->rank; ++i) {
    p->in[i] = data[i + 2];
    p->taps[i] = filter[i + 2];
    if (p->in[i] < 1) return "it has no pixel";
  }
  const char *wrong = resolve_pads(node, p, extra);
  for (int i = 0; wrong == NULL && i < p->rank; ++i) {
    if (!(p->transposed ? transposed_axis(p, i, extra[i]) : forward_axis(p, i))) wrong = "its extents contradict each other";
    if (p->taps[i] == 1) p->dilations[i] = 1;
  }
  if (wrong != NULL) return wrong;
  int out_rank = shape_of(node->outputs[0], &filter_type, output, AXES + 2);
  for (int i = 0; i < p->rank && out_rank == rank; ++i)
    if (output[i + 2] >= 0 && output[i + 2] != p->out[i]) return "onnxruntime infers another shape for its output";
  return NULL;
}

uint64_t hash_of(const struct graph *graph) {
  uint64_t hash = 0;
  for (size_t i = 0; i < graph->count; ++i) {
    struct problem p;
    if (!is_convolution(&graph->nodes[i]) || read_problem(&graph->nodes[i], &p) != NULL) continue;
    /* Sum of FNV-1a hashes, independent of onnxruntime's order of nodes and of what it fuses into them. */
    uint64_t one = 14695981039346656037u, numbers[] = {(uint64_t)p.transposed, (uint64_t)p.type, (uint64_t)p.batch,
                                                       (uint64_t)p.in_channels, (uint64_t)p.out_channels, (uint64_t)p.groups};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; ++k) one = (one ^ numbers[k]) * 1099511628211u;
    for (int k = 0; k < p.rank; ++k)
      one = ((((one ^ (uint64_t)p.in[k]) * 1099511628211u ^ (uint64_t)p.out[k]) * 1099511628211u ^ (uint64_t)p.taps[k]) * 1099511628211u);
    hash += one ^ one >> 29;
  }
  return hash;
}

double operations(const struct problem *p) {
  double count = (double)p->batch * (double)p->in_channels * (double)p->out_channels / (double)at_least(p->groups, 1);
  for (int i = 0; i < p->rank; ++i) count *= (double)p->taps[i] * (double)(p->transposed ? p->in[i] : p->out[i]);
  return count;
}

/* Brings steps into tvmconv.epilogue's canonical form: consecutive clips are merged, identities are dropped. */
static void canonical(const struct problem *problem, struct problem *made) {
  *made = *problem;
  made->step_count = 0;
  for (int i = 0; i < problem->step_count; ++i) {
    struct step step = problem->steps[i], *before = made->step_count > 0 ? &made->steps[made->step_count - 1] : NULL;
    if (step.kind == CLIP && before != NULL && before->kind == CLIP) {
      step.a = fminf(fmaxf(before->a, problem->steps[i].a), problem->steps[i].b);
      step.b = fminf(fmaxf(before->b, problem->steps[i].a), problem->steps[i].b);
      --made->step_count;
    }
    int nothing = (step.kind == CLIP && step.a == -INFINITY && step.b == INFINITY) || (step.kind == LEAKY && step.a == 1.0f);
    if (!nothing) made->steps[made->step_count++] = step;
  }
}

static int equal_axes(const int64_t *a, const int64_t *b, int rank) {
  return memcmp(a, b, (size_t)rank * sizeof *a) == 0;
}

static int equal(const struct problem *a, const struct problem *b) {
  int r = a->rank;
  if (a->transposed != b->transposed || r != b->rank || a->type != b->type || a->bias != b->bias || a->batch != b->batch ||
      a->in_channels != b->in_channels || a->out_channels != b->out_channels || a->groups != b->groups ||
      !equal_axes(a->in, b->in, r) || !equal_axes(a->out, b->out, r) || !equal_axes(a->taps, b->taps, r) ||
      !equal_axes(a->strides, b->strides, r) || !equal_axes(a->dilations, b->dilations, r) ||
      !equal_axes(a->begin, b->begin, r) || !equal_axes(a->end, b->end, r) || a->step_count != b->step_count)
    return 0;
  for (int i = 0; i < a->step_count; ++i)
    if (a->steps[i].kind != b->steps[i].kind || a->steps[i].a != b->steps[i].a || a->steps[i].b != b->steps[i].b) return 0;
  return 1;
}

static const tvmconv_name_kernel *find_kernel(const struct problem *problem) {
  struct problem wanted;
  canonical(problem, &wanted);
  for (int i = 0; i < tvmconv_name_kernel_count; ++i)
    if (equal(&wanted, &tvmconv_name_rt_problems[i])) return tvmconv_name_kernels[i];
  return NULL;
}

void find_match(const struct graph *graph, size_t convolution, struct match *best) {
  const struct node *node = &graph->nodes[convolution];
  struct match match;
  memset(&match, 0, sizeof match);
  match.reason = read_problem(node, &match.problem);
  *best = match;
  if (match.reason != NULL) return;
  best->reason = "the library has no kernel of its shape";
  match.nodes[match.node_count++] = convolution;
  match.output = node->outputs[0];
  match.operands[DATA] = node->inputs[0];
  match.operands[FILTER] = node->inputs[1];
  match.operands[BIAS] = match.problem.bias ? node->inputs[2] : NULL;
  do {
    match.kernel = find_kernel(&match.problem);
    if (match.kernel != NULL) *best = match;
  } while (follow(graph, &match));
}
