/* Nodes between convolutions that are computed here, and their units. */
#include "tvmconv-plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Channels of which `across` keeps the squares (BLOCK of ops.c). */
enum { MOST_ACROSS = 1024, MOST_INTS = 8 };

static int is(const struct node *node, const char *type) { return strcmp(node->type, type) == 0; }

static int is_fixed(const ort_value_info *value) { return fixed_data(value) != NULL; }

/* Returns whether a tensor is images with channels, and computed rather than fixed. */
static int read_data(const ort_value_info *value, struct extent *extent) {
  return read_extent(value, extent) && extent->rank > 2 && !is_fixed(value);
}

/* The step that a node makes of `x`, whose extent its output has. */
static int read_step(const struct node *node, const ort_value_info *x, struct mapped *mapped) {
  struct extent data, other, output;
  memset(mapped, 0, sizeof *mapped);
  if (node->output_count != 1 || !read_data(x, &data) || !read_extent(node->outputs[0], &output) ||
      !same_extent(&data, &output))
    return 0;
  struct map_step *step = &mapped->step;
  struct problem channels = {.rank = data.rank - 2, .out_channels = data.channels};
  const char *name = name_of(x);
  step->kind = FUNCTION;
  if (read_activation(node, name, &step->function)) return 1;
  step->kind = AFFINE;
  if (is_normalization(node, name, data.channels)) return 1;
  const ort_value_info *given = other_input(node, name);
  int first = given != NULL && given == node->inputs[1], sum = is(node, "Add") || is(node, "Sum"), product = is(node, "Mul");
  int difference = is(node, "Sub"), quotient = is(node, "Div");
  if (given == NULL) return 0;
  mapped->other = given;
  if (is(node, "PRelu")) {
    step->kind = SLOPED;
    return first && is_per_channel(given, &channels);
  }
  if (!sum && !product && !difference && !quotient) return 0;
  if (is_fixed(given)) return is_per_channel(given, &channels) && (!quotient || first);
  if (!read_extent(given, &other) || other.type != data.type || other.rank != data.rank) return 0;
  if (same_extent(&data, &other)) {
    step->kind = sum ? PLUS : product ? TIMES : difference ? first ? MINUS : TAKEN_FROM : OVER;
    return !quotient || first;
  }
  step->kind = product ? GATED : SHIFTED;
  return (product || sum) && other.batch == data.batch && other.channels == data.channels && other.pixels == 1;
}

int read_map(const struct graph *graph, size_t first, struct unit *unit) {
  const struct node *node = &graph->nodes[first];
  for (size_t i = 0; i < node->input_count && i < 2 && unit->step_count == 0; ++i)
    if (node->inputs[i] != NULL && read_step(node, node->inputs[i], &unit->steps[0])) {
      unit->input = node->inputs[i];
      unit->step_count = 1;
    }
  if (unit->step_count == 0) return 0;
  unit->kind = MAP;
  unit->steps[0].node = first;
  unit->output = node->outputs[0];
  while (unit->step_count < MOST_STEPS && !is_kept(graph, unit->output)) {
    long next = only_reader(graph, name_of(unit->output));
    if (next < 0 || !read_step(&graph->nodes[next], unit->output, &unit->steps[unit->step_count])) break;
    unit->steps[unit->step_count++].node = (size_t)next;
    unit->nodes[unit->node_count++] = (size_t)next;
    unit->output = graph->nodes[next].outputs[0];
  }
  return 1;
}

static int same_window(const struct problem *w) {
  for (int i = 0; i < w->rank; ++i)
    if ((w->out[i] - 1) * w->strides[i] - w->begin[i] >= w->in[i]) return 0; /* no tap of the last meets the data */
  return 1;
}

/* The axes of a mean over all pixels of each channel. */
static int over_pixels(const struct node *node, int rank) {
  int64_t axes[AXES + 2];
  int count = integers_attribute(node, "axes", axes, AXES + 2), seen = 0;
  if (count == -1 && node->input_count > 1 && node->inputs[1] != NULL) count = fixed_integers(node->inputs[1], axes, AXES + 2);
  if (count != rank - 2) return 0;
  for (int i = 0; i < count; ++i) seen |= 1 << (axes[i] < 0 ? axes[i] + rank : axes[i]);
  return seen == (((1 << rank) - 1) & ~3);
}

/* Nearest pixels, a whole number of times each: output i is input i * inputs / outputs. */
static int repeats(const struct node *node, const struct extent *data, const struct extent *output) {
  char how[32], where[32], nearest[32];
  int mode = text_attribute(node, "mode", how, sizeof how), place = text_attribute(node, "coordinate_transformation_mode", where, sizeof where);
  int rounding = text_attribute(node, "nearest_mode", nearest, sizeof nearest), twice = 1;
  if (mode < 0 || place < 0 || rounding < 0 || (mode == 1 && strcmp(how, "nearest") != 0) || output->rank != data->rank ||
      output->batch != data->batch || output->channels != data->channels || output->type != data->type)
    return 0;
  for (int i = 2; i < data->rank; ++i) {
    if (output->dims[i] % data->dims[i] != 0) return 0;
    twice &= output->dims[i] / data->dims[i] <= 2;
  }
  if (is(node, "Upsample")) return 1;
  int asymmetric = place == 1 && strcmp(where, "asymmetric") == 0, half = place == 0 || strcmp(where, "half_pixel") == 0;
  int floors = rounding == 1 && strcmp(nearest, "floor") == 0, down = rounding == 0 || strcmp(nearest, "round_prefer_floor") == 0;
  return (asymmetric && (floors || (down && twice))) || (half && down);
}

int read_window_unit(const struct graph *graph, size_t number, struct unit *unit) {
  const struct node *node = &graph->nodes[number];
  struct extent data, output;
  if (node->input_count < 1 || node->output_count != 1 || !read_data(node->inputs[0], &data) ||
      !read_extent(node->outputs[0], &output) || data.type != output.type || data.batch != output.batch || data.channels != output.channels)
    return 0;
  unit->input = node->inputs[0];
  unit->output = node->outputs[0];
  if (is(node, "MaxPool") || is(node, "AveragePool")) {
    int includes = (int)integer_attribute(node, "count_include_pad", 0);
    unit->kind = POOL;
    unit->pooling = is(node, "MaxPool") ? MAXIMUM : includes ? AVERAGE_OF_ALL : AVERAGE;
    if (read_window(node, &unit->window) != NULL || !same_window(&unit->window)) return 0;
    return integer_attribute(node, "ceil_mode", 0) == 0 || unit->pooling != AVERAGE_OF_ALL;
  }
  if (is(node, "GlobalAveragePool") || is(node, "GlobalMaxPool") || is(node, "ReduceMean")) {
    unit->kind = REDUCE;
    unit->pooling = is(node, "GlobalMaxPool") ? MAXIMUM : AVERAGE;
    return output.pixels == 1 && (!is(node, "ReduceMean") || over_pixels(node, data.rank));
  }
  if (is(node, "LRN")) {
    unit->kind = ACROSS;
    unit->groups = integer_attribute(node, "size", 0);
    unit->alpha = float_attribute(node, "alpha", 1e-4f);
    unit->beta = float_attribute(node, "beta", 0.75f);
    unit->bias = float_attribute(node, "bias", 1);
    return unit->groups % 2 == 1 && unit->groups <= MOST_ACROSS && data.channels <= MOST_ACROSS && same_extent(&data, &output);
  }
  if (is(node, "Resize") || is(node, "Upsample")) {
    unit->kind = STRETCH;
    unit->window.rank = data.rank - 2;
    memcpy(unit->window.in, data.dims + 2, (size_t)(data.rank - 2) * sizeof *data.dims);
    memcpy(unit->window.out, output.dims + 2, (size_t)(data.rank - 2) * sizeof *data.dims);
    return repeats(node, &data, &output);
  }
  return 0;
}

static int axis_is_channels(const struct node *node, int64_t none, int rank) {
  int64_t axis = integer_attribute(node, "axis", none);
  return (axis < 0 ? axis + rank : axis) == 1;
}

/* A channel shuffle: the channels as groups by others, exchanged. */
static int read_shuffle(const struct graph *graph, size_t number, const struct extent *data, struct unit *unit) {
  static const int64_t exchanged[] = {0, 2, 1, 3, 4};
  const struct node *node = &graph->nodes[number];
  int64_t dims[MOST_INTS], order[MOST_INTS];
  int type = 0, rank = shape_of(node->outputs[0], &type, dims, MOST_INTS);
  if (!is(node, "Reshape") || rank != data->rank + 1 || dims[0] != data->batch || dims[1] < 1 || dims[1] * dims[2] != data->channels ||
      rank > 5 || memcmp(dims + 3, data->dims + 2, (size_t)(rank - 3) * sizeof *dims) != 0 || is_kept(graph, node->outputs[0]))
    return 0;
  long turn = only_reader(graph, name_of(node->outputs[0]));
  if (turn < 0 || !is(&graph->nodes[turn], "Transpose") || integers_attribute(&graph->nodes[turn], "perm", order, MOST_INTS) != rank ||
      memcmp(order, exchanged, (size_t)rank * sizeof *order) != 0 || is_kept(graph, graph->nodes[turn].outputs[0]))
    return 0;
  long last = only_reader(graph, name_of(graph->nodes[turn].outputs[0]));
  struct extent output;
  if (last < 0 || !is(&graph->nodes[last], "Reshape") || !read_extent(graph->nodes[last].outputs[0], &output) || !same_extent(data, &output))
    return 0;
  unit->kind = SHUFFLE;
  unit->groups = dims[1];
  unit->nodes[1] = (size_t)turn;
  unit->nodes[2] = (size_t)last;
  unit->node_count = 3;
  unit->output = graph->nodes[last].outputs[0];
  return 1;
}

/* Channels from `start` on, one after the other, of an operator Slice. */
static int slices_channels(const struct node *node, int rank, int64_t *start) {
  int64_t starts[MOST_INTS], axes[MOST_INTS], steps[MOST_INTS];
  int count;
  if (node->input_count > 1) {
    count = fixed_integers(node->inputs[1], starts, MOST_INTS);
    if (node->input_count < 4 || fixed_integers(node->inputs[3], axes, MOST_INTS) != 1) return 0;
    if (node->input_count > 4 && node->inputs[4] != NULL && (fixed_integers(node->inputs[4], steps, MOST_INTS) != 1 || steps[0] != 1)) return 0;
  } else {
    count = integers_attribute(node, "starts", starts, MOST_INTS);
    if (integers_attribute(node, "axes", axes, MOST_INTS) != 1) return 0;
  }
  *start = starts[0];
  return count == 1 && (axes[0] < 0 ? axes[0] + rank : axes[0]) == 1;
}

int read_move(const struct graph *graph, size_t number, struct unit *unit) {
  const struct node *node = &graph->nodes[number];
  struct extent data, output;
  if (node->input_count < 1 || node->output_count < 1 || !read_data(node->inputs[0], &data)) return 0;
  unit->input = node->inputs[0];
  unit->output = node->outputs[0];
  if (is(node, "Split")) {
    int64_t all = 0;
    unit->kind = PART;
    for (size_t i = 0; i < node->output_count; ++i) {
      if (!read_extent(node->outputs[i], &output) || output.type != data.type || output.rank != data.rank || output.pixels != data.pixels) return 0;
      all += output.channels;
    }
    return all == data.channels && axis_is_channels(node, 0, data.rank);
  }
  if (node->output_count != 1 || !read_extent(node->outputs[0], &output)) return read_shuffle(graph, number, &data, unit);
  if (output.type != data.type || output.batch != data.batch) return 0;
  if (is(node, "Concat")) {
    unit->kind = JOIN;
    for (size_t i = 0; i < node->input_count; ++i)
      if (!read_data(node->inputs[i], &data) || data.type != output.type || data.pixels != output.pixels || data.batch != output.batch) return 0;
    return axis_is_channels(node, 1, output.rank);
  }
  if (is(node, "Slice")) {
    unit->kind = PART;
    if (output.rank != data.rank || output.pixels != data.pixels || !slices_channels(node, data.rank, &unit->groups)) return 0;
    if (unit->groups < 0) unit->groups += data.channels;
    return unit->groups >= 0 && unit->groups + output.channels <= data.channels;
  }
  unit->kind = SAME;
  if (is(node, "Identity") || (is(node, "Dropout") && node->output_count == 1)) return same_extent(&data, &output);
  if (is(node, "Reshape") || is(node, "Flatten") || is(node, "Squeeze"))
    if (data.pixels == 1 && output.pixels == 1 && output.channels == data.channels) return 1;
  return read_shuffle(graph, number, &data, unit);
}
