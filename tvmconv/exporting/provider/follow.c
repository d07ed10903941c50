/* Matching of the epilogue after a convolution: tvmconv.frontends.following, on onnxruntime's graphs. */
#include "tvmconv-graph.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int is(const struct graph *graph, long node, const char *type) {
  return node >= 0 && !graph->nodes[node].taken && strcmp(graph->nodes[node].type, type) == 0 &&
         graph->nodes[node].output_count == 1;
}

static const char *output_of(const struct graph *graph, long node) { return name_of(graph->nodes[node].outputs[0]); }

static int reads(const struct node *node, const char *name) {
  for (size_t i = 0; i < node->input_count; ++i)
    if (node->inputs[i] != NULL && strcmp(name_of(node->inputs[i]), name) == 0) return 1;
  return 0;
}

const ort_value_info *other_input(const struct node *node, const char *name) {
  if (node->input_count != 2 || node->inputs[0] == NULL || node->inputs[1] == NULL) return NULL;
  int first = strcmp(name_of(node->inputs[0]), name) == 0, second = strcmp(name_of(node->inputs[1]), name) == 0;
  return first == second ? NULL : node->inputs[first ? 1 : 0];
}

static int number(const ort_value_info *value, float *found) {
  size_t count = 0;
  float *numbers = fixed_numbers(value, 1, &count);
  int fine = numbers != NULL && count == 1;
  if (fine) *found = numbers[0];
  free(numbers);
  return fine;
}

/* Returns whether a node is `type` of the tensor `name` and a constant near `wanted`, which is the second operand of Div. */
static int computes(const struct graph *graph, long node, const char *type, const char *name, double wanted, int model_type) {
  float given = 0;
  double tolerance = model_type == ORT_FLOAT16 ? 2e-3 : model_type == ORT_BFLOAT16 ? 1.6e-2 : 1e-6;
  if (!is(graph, node, type)) return 0;
  const struct node *found = &graph->nodes[node];
  const ort_value_info *other = other_input(found, name);
  if (strcmp(type, "Div") == 0 && other != NULL && other != found->inputs[1]) return 0;
  return other != NULL && number(other, &given) && fabs(given - wanted) <= tolerance * fabs(wanted);
}

/* Returns whether a node multiplies by `factor`, or divides by its reciprocal. */
static int scales(const struct graph *graph, long node, const char *name, double factor, int type) {
  return computes(graph, node, "Mul", name, factor, type) || computes(graph, node, "Div", name, 1 / factor, type);
}

static int clips(const struct node *node, float *lo, float *hi) {
  float *bounds[] = {lo, hi};
  const char *names[] = {"min", "max"};
  for (int i = 0; i < 2; ++i) {
    float none = i == 0 ? -INFINITY : INFINITY;
    size_t place = (size_t)i + 1;
    *bounds[i] = none;
    if (node->input_count > place && node->inputs[place] != NULL && name_of(node->inputs[place])[0] != '\0') {
      if (!number(node->inputs[place], bounds[i])) return 0;
    } else {
      *bounds[i] = float_attribute(node, names[i], none);
    }
    if (isnan(*bounds[i])) return 0;
    if (fabsf(*bounds[i]) >= FLT_MAX && (*bounds[i] > 0) == (none > 0)) *bounds[i] = none;
  }
  return *lo <= *hi && *lo < INFINITY && *hi > -INFINITY;
}

static int clips_to_six(const struct graph *graph, long node) {
  float lo, hi;
  return is(graph, node, "Clip") && clips(&graph->nodes[node], &lo, &hi) && lo == 0 && hi == 6;
}

static int take(const struct graph *graph, struct match *match, struct step step, const long *nodes, int count) {
  struct problem *problem = &match->problem;
  if (problem->step_count >= MOST_STEPS || match->node_count + count > MOST_NODES) return 0;
  for (int i = 0; i < count; ++i) match->nodes[match->node_count++] = (size_t)nodes[i];
  problem->steps[problem->step_count++] = step;
  match->output = graph->nodes[nodes[count - 1]].outputs[0];
  return 1;
}

/* Matches min(max(x + 3, 0), 6) / 6, with a product with x before or after the division if `product` >= 0. Returns the number of nodes. */
static int bound(const struct graph *graph, long first, const char *x, long product, int type, long *nodes) {
  if (!computes(graph, first, "Add", x, 3, type)) return 0;
  long clip = only_reader(graph, first);
  if (!clips_to_six(graph, clip)) return 0;
  long next = only_reader(graph, clip), last;
  nodes[0] = first, nodes[1] = clip, nodes[2] = next;
  if (scales(graph, next, output_of(graph, clip), 1.0 / 6, type)) {
    if (product < 0) return 3;
    last = only_reader(graph, next);
    nodes[3] = last;
    return last >= 0 && last == product && reads(&graph->nodes[product], x) ? 4 : 0;
  }
  if (product < 0 || next != product || !reads(&graph->nodes[product], x)) return 0;
  last = only_reader(graph, product);
  nodes[3] = last;
  return scales(graph, last, output_of(graph, product), 1.0 / 6, type) ? 4 : 0;
}

/* Matches x/2 * (1 + erf(x/sqrt 2)), as exporters write it. Returns the number of nodes, 0 if it is none. */
static int error_function(const struct graph *graph, long first, const char *x, long product, int type, long *nodes) {
  if (!scales(graph, first, x, sqrt(0.5), type)) return 0;
  long erf_node = only_reader(graph, first);
  if (!is(graph, erf_node, "Erf")) return 0;
  long one = only_reader(graph, erf_node);
  if (!computes(graph, one, "Add", output_of(graph, erf_node), 1, type)) return 0;
  long next = only_reader(graph, one);
  long found[] = {first, erf_node, one, next, -1};
  if (next == product) {
    found[4] = only_reader(graph, product);
    if (!scales(graph, found[4], output_of(graph, product), 0.5, type)) return 0;
  } else {
    if (!scales(graph, next, output_of(graph, one), 0.5, type)) return 0;
    found[4] = only_reader(graph, next);
    if (found[4] != product) return 0;
  }
  memcpy(nodes, found, sizeof found);
  return 5;
}

/* Takes an activation x * f(x), in which two nodes read x; returns 0 if it is none. */
static int pair(const struct graph *graph, struct match *match, const char *x, long one, long product) {
  long nodes[5] = {one, product, -1, -1, -1};
  int type = match->problem.type;
  if (!is(graph, product, "Mul") || graph->nodes[one].taken || graph->nodes[one].output_count != 1) return 0;
  const ort_value_info *other = other_input(&graph->nodes[product], x);
  if (other == NULL) return 0;
  int direct = strcmp(name_of(other), output_of(graph, one)) == 0 && only_reader(graph, one) == product;
  if (direct && is(graph, one, "Sigmoid")) return take(graph, match, (struct step){SILU, 0, 0}, nodes, 2);
  if (direct && is(graph, one, "HardSigmoid") && float_attribute(&graph->nodes[one], "beta", 0.5f) == 0.5f &&
      fabsf(float_attribute(&graph->nodes[one], "alpha", 0.2f) - 1 / 6.0f) < 1e-6f)
    return take(graph, match, (struct step){HARDSWISH, 0, 0}, nodes, 2);
  int count = bound(graph, one, x, product, type, nodes);
  if (count > 0) return take(graph, match, (struct step){HARDSWISH, 0, 0}, nodes, count);
  count = error_function(graph, one, x, product, type, nodes);
  return count > 0 && take(graph, match, (struct step){GELU, 0, 0}, nodes, count);
}

static int read_activation(const struct node *found, const char *x, struct step *step) {
  static const struct {
    const char *type;
    enum kind kind;
    const char *names[2];
    float values[2];
  } known[] = {{"Sigmoid", SIGMOID, {NULL, NULL}, {0, 0}},
               {"Tanh", TANH, {NULL, NULL}, {0, 0}},
               {"HardSwish", HARDSWISH, {NULL, NULL}, {0, 0}},
               {"LeakyRelu", LEAKY, {"alpha", NULL}, {0.01f, 0}},
               {"Elu", ELU, {"alpha", NULL}, {1, 0}},
               {"HardSigmoid", HARDSIGMOID, {"alpha", "beta"}, {0.2f, 0.5f}}};
  if (found->input_count < 1 || found->output_count != 1 || strcmp(name_of(found->inputs[0]), x) != 0) return 0;
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (strcmp(found->type, known[i].type) != 0) continue;
    *step = (struct step){known[i].kind, known[i].values[0], known[i].values[1]};
    if (known[i].names[0] != NULL) step->a = float_attribute(found, known[i].names[0], step->a);
    if (known[i].names[1] != NULL) step->b = float_attribute(found, known[i].names[1], step->b);
    return 1;
  }
  *step = (struct step){CLIP, 0, INFINITY};
  if (strcmp(found->type, "Relu") == 0) return 1;
  if (strcmp(found->type, "Clip") == 0) return clips(found, &step->a, &step->b);
  if (strcmp(found->type, "Gelu") == 0) {
    char how[8];
    int given = text_attribute(found, "approximate", how, sizeof how);
    int tanh_form = given == 1 && strcmp(how, "tanh") == 0;
    if (given < 0 || (given == 1 && !tanh_form && strcmp(how, "none") != 0)) return 0;
    *step = (struct step){tanh_form ? GELU_TANH : GELU, 0, 0};
    return 1;
  }
  return 0;
}

static int activation(const struct graph *graph, struct match *match, const char *x, long node) {
  struct step step;
  return read_activation(&graph->nodes[node], x, &step) && take(graph, match, step, &node, 1);
}

int is_per_channel(const ort_value_info *value, const struct problem *problem) {
  int64_t dims[AXES + 2], product = 1;
  int type = 0, rank = shape_of(value, &type, dims, problem->rank + 2), channels = problem->rank + 1;
  if (rank < 0 || fixed_data(value) == NULL) return 0;
  for (int i = 0; i < rank; ++i) product *= dims[i];
  if (product == 1) return 1;
  if (rank < channels || dims[rank - channels] != problem->out_channels) return 0;
  return product == problem->out_channels;
}

static int is_residual(const ort_value_info *value, const struct problem *problem) {
  int64_t dims[AXES + 2];
  int type = 0, rank = shape_of(value, &type, dims, AXES + 2);
  return rank == problem->rank + 2 && type == problem->type && dims[0] == problem->batch && dims[1] == problem->out_channels &&
         memcmp(dims + 2, problem->out, (size_t)problem->rank * sizeof *dims) == 0;
}

static int has(const struct problem *problem, enum kind kind) {
  for (int i = 0; i < problem->step_count; ++i)
    if (problem->steps[i].kind == kind) return 1;
  return 0;
}

static int operand(const struct graph *graph, struct match *match, const char *x, long node) {
  const struct node *found = &graph->nodes[node];
  struct problem *problem = &match->problem;
  const ort_value_info *other = other_input(found, x);
  if (other == NULL || found->output_count != 1) return 0;
  int product = strcmp(found->type, "Mul") == 0, sum = strcmp(found->type, "Add") == 0 || strcmp(found->type, "Sum") == 0;
  if (strcmp(found->type, "PRelu") == 0 && other == found->inputs[1]) {
    struct step step = {LEAKY, 0, 0};
    if (number(other, &step.a)) return take(graph, match, step, &node, 1);
    if (has(problem, PRELU) || !is_per_channel(other, problem)) return 0;
    match->operands[SLOPE] = other;
    return take(graph, match, (struct step){PRELU, 0, 0}, &node, 1);
  }
  if (product && !has(problem, SCALE) && is_per_channel(other, problem)) {
    match->operands[SCALES] = other;
    return take(graph, match, (struct step){SCALE, 0, 0}, &node, 1);
  }
  if (!sum || has(problem, ADD) || !is_residual(other, problem)) return 0;
  match->operands[RESIDUAL] = other;
  return take(graph, match, (struct step){ADD, 0, 0}, &node, 1);
}

int follow(const struct graph *graph, struct match *match) {
  const char *x = name_of(match->output);
  const struct use *first;
  size_t count = readers_of(graph, x, &first);
  if (is_kept(graph, match->output)) return 0;
  if (count == 2) {
    long one = (long)first[0].node, two = (long)first[1].node;
    return one != two && (pair(graph, match, x, one, two) || pair(graph, match, x, two, one));
  }
  if (count != 1 || graph->nodes[first->node].taken) return 0;
  long node = (long)first->node, nodes[4];
  int bounded = bound(graph, node, x, -1, match->problem.type, nodes);
  if (bounded == 3) return take(graph, match, (struct step){HARDSIGMOID, 1 / 6.0f, 0.5f}, nodes, bounded);
  return fold(graph, match, node) || activation(graph, match, x, node) || operand(graph, match, x, node);
}
