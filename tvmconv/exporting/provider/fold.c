/* Folding of the nodes after a convolution into its filter and bias: batch normalization, Mul and Add with constants. */
#include "tvmconv-graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEAN_PLACE = 3, VARIANCE_PLACE = 4, NORMALIZATION_INPUTS = 5 };

static int is_normalization(const struct node *node, const char *name, int64_t channels) {
  if (strcmp(node->type, "BatchNormalization") != 0 || node->input_count != NORMALIZATION_INPUTS || node->output_count != 1 ||
      strcmp(name_of(node->inputs[0]), name) != 0 || integer_attribute(node, "training_mode", 0) != 0)
    return 0;
  for (int i = 1; i < NORMALIZATION_INPUTS; ++i) {
    int64_t dims[1];
    int type = 0;
    if (shape_of(node->inputs[i], &type, dims, 1) != 1 || !is_floating(type) || dims[0] != channels || fixed_data(node->inputs[i]) == NULL) return 0;
  }
  return 1;
}

static int folds(const struct node *node, const struct match *match, const char *x) {
  if (is_normalization(node, x, match->problem.out_channels)) return 1;
  if (strcmp(node->type, "Mul") != 0 && strcmp(node->type, "Add") != 0) return 0;
  const ort_value_info *other = other_input(node, x);
  return other != NULL && node->output_count == 1 && is_per_channel(other, &match->problem);
}

int fold(const struct graph *graph, struct match *match, long node) {
  struct problem *problem = &match->problem;
  if (problem->step_count > 0 || match->fold_count == MOST_FOLDS || problem->type != ORT_FLOAT ||
      match->node_count == MOST_NODES || fixed_data(match->operands[FILTER]) == NULL ||
      (match->operands[BIAS] != NULL && fixed_data(match->operands[BIAS]) == NULL) ||
      !folds(&graph->nodes[node], match, name_of(match->output)))
    return 0;
  if (strcmp(graph->nodes[node].type, "Mul") != 0) problem->bias = 1;
  match->folds[match->fold_count++] = (size_t)node;
  match->nodes[match->node_count++] = (size_t)node;
  match->output = graph->nodes[node].outputs[0];
  return 1;
}

/* Composes factor * x + term, of `channels` numbers each, with a node; `other` is the constant operand of Mul and Add. */
static int compose(const struct node *node, const ort_value_info *other, size_t channels, float *factor, float *term) {
  float *read[NORMALIZATION_INPUTS] = {NULL};
  size_t counts[NORMALIZATION_INPUTS] = {0};
  int normalizes = strcmp(node->type, "BatchNormalization") == 0, fine = 1;
  if (normalizes) {
    for (int i = 1; i < NORMALIZATION_INPUTS; ++i) fine &= (read[i] = fixed_numbers(node->inputs[i], channels, &counts[i])) != NULL;
  } else {
    fine = (read[0] = fixed_numbers(other, channels, &counts[0])) != NULL;
  }
  for (size_t m = 0; fine && m < channels; ++m) {
    float by = 1, plus = 0;
    if (normalizes) {
      by = read[1][m] / sqrtf(read[VARIANCE_PLACE][m] + float_attribute(node, "epsilon", 1e-5f));
      plus = read[2][m] - read[MEAN_PLACE][m] * by;
    } else {
      float number = read[0][counts[0] == 1 ? 0 : m];
      *(strcmp(node->type, "Mul") == 0 ? &by : &plus) = number;
    }
    factor[m] *= by;
    term[m] = term[m] * by + plus;
  }
  for (int i = 0; i < NORMALIZATION_INPUTS; ++i) free(read[i]);
  return fine;
}

int folded(const struct graph *graph, const struct match *match, float *filter, float *bias) {
  const struct problem *p = &match->problem;
  size_t channels = (size_t)p->out_channels, taps = 1;
  float *factor = malloc((channels + 1) * sizeof *factor), *term = calloc(channels + 1, sizeof *term);
  const float *given = match->operands[BIAS] != NULL ? fixed_data(match->operands[BIAS]) : NULL;
  int fine = factor != NULL && term != NULL;
  for (size_t m = 0; fine && m < channels; ++m) factor[m] = 1;
  for (int i = 0; fine && i < match->fold_count; ++i) {
    const struct node *node = &graph->nodes[match->folds[i]], *before = &graph->nodes[match->nodes[i]];
    fine = compose(node, other_input(node, name_of(before->outputs[0])), channels, factor, term);
  }
  for (int i = 0; i < p->rank; ++i) taps *= (size_t)p->taps[i];
  /* The filter's layout is (outputs, inputs of a group, taps), transposed (inputs, outputs of a group, taps). */
  size_t in_group = (size_t)(p->in_channels / p->groups), out_group = (size_t)(p->out_channels / p->groups);
  size_t rows = p->transposed ? (size_t)p->in_channels * out_group : channels * in_group;
  for (size_t row = 0; fine && filter != NULL && row < rows; ++row) {
    size_t m = p->transposed ? row / out_group / in_group * out_group + row % out_group : row / in_group;
    for (size_t k = 0; k < taps; ++k) filter[row * taps + k] *= factor[m];
  }
  for (size_t m = 0; fine && bias != NULL && m < channels; ++m) bias[m] = (given != NULL ? given[m] * factor[m] : 0) + term[m];
  free(factor);
  free(term);
  return fine;
}
