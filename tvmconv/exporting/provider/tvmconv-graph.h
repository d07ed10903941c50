/* onnxruntime's graphs as a provider reads them, and the kernels that compute parts of them. */
#ifndef TVMCONV_GRAPH_H
#define TVMCONV_GRAPH_H

#include "tvmconv-ort.h"
#include "tvmconv_name.h"

enum { AXES = 3, MOST_STEPS = 12, MOST_NODES = 40, MOST_FOLDS = 6 };

/* The steps of an epilogue. relu is a clip from 0. */
enum kind { SCALE, ADD, CLIP, LEAKY, PRELU, ELU, SIGMOID, TANH, HARDSIGMOID, SILU, HARDSWISH, GELU, GELU_TANH };
struct step {
  enum kind kind;
  float a, b;
};

/* A convolution with explicit numbers, as tvmconv.problem has it. */
struct problem {
  int transposed, rank, type, bias;
  int64_t batch, in_channels, out_channels, groups;
  int64_t in[AXES], out[AXES], taps[AXES], strides[AXES], dilations[AXES], begin[AXES], end[AXES];
  int step_count;
  struct step steps[MOST_STEPS];
};

/* The library's problems; that of number i is computed by tvmconv_name_kernels[place]. */
struct row {
  int place;
  struct problem problem;
};
extern const struct row tvmconv_name_rt_rows[];
extern const int tvmconv_name_rt_row_count;
/* Whether all convolutions of a graph are left to onnxruntime, because they were estimated to be slower here. */
extern const int tvmconv_name_rt_declines;

struct node {
  const ort_node *node;
  const char *type;
  size_t input_count, output_count;
  const ort_value_info **inputs, **outputs; /* NULL: an input that is left out */
  int taken;
};
struct reader {
  const char *name;
  size_t node;
};
struct graph {
  struct node *nodes;
  size_t count;
  struct reader *readers; /* of all tensors, by their names */
  size_t reader_count;
};

/* A convolution and what follows it, as far as a kernel computes it. */
enum operand { DATA, FILTER, BIAS, SCALES, SLOPE, RESIDUAL, OPERANDS };
struct match {
  const tvmconv_name_kernel *kernel; /* NULL: there is none */
  const char *reason;                /* why not */
  struct problem problem;
  size_t nodes[MOST_NODES];
  int node_count;
  size_t folds[MOST_FOLDS]; /* those that go into the filter and the bias, the first after the convolution */
  int fold_count;
  const ort_value_info *operands[OPERANDS], *output;
};

/* Whether a call of onnxruntime's did what it should. */
int good(ort_status *status);

int read_graph(const ort_graph *graph, struct graph *read);
void free_graph(struct graph *read);
int is_convolution(const struct node *node);
const char *name_of(const ort_value_info *value);
/* The only reader of a tensor, if it is in this graph and the tensor is not the graph's output; else -1. */
long only_reader(const struct graph *graph, const char *name);
size_t readers_of(const struct graph *graph, const char *name, const struct reader **first);

/* The type and dimensions of a tensor; -1: not a number. Returns the rank, or -1. */
int shape_of(const ort_value_info *value, int *type, int64_t *dims, int most);
/* The elements of a fixed tensor of numbers, as f32, NULL if it is none or there are more than `most`; to be freed. */
float *fixed_numbers(const ort_value_info *value, size_t most, size_t *count);
const void *fixed_data(const ort_value_info *value);
int64_t integer_attribute(const struct node *node, const char *name, int64_t none);
float float_attribute(const struct node *node, const char *name, float none);
/* The count of a node's integers; -1 if it has none, -2 if it has more than `most`. */
int integers_attribute(const struct node *node, const char *name, int64_t *values, int most);
/* 0 if there is none. */
int text_attribute(const struct node *node, const char *name, char *text, size_t size);

/* The multiply-adds of a problem; 0 where its shape is not known. */
double operations(const struct problem *problem);
/* The other input of a node of two, NULL if it does not read `name` or has not two. */
const ort_value_info *other_input(const struct node *node, const char *name);
/* Whether a tensor is fixed, and one number for each channel of the output that it is broadcast to, or for all. */
int is_per_channel(const ort_value_info *value, const struct problem *problem);

/* What a convolution computes alone. Returns NULL, or why no kernel does. */
const char *read_problem(const struct node *node, struct problem *problem);
/* Takes the next step after a tensor; returns 0 if there is none. */
int follow(const struct graph *graph, struct match *match);
/* Takes a node that goes into the filter and the bias, if it is one. */
int fold(const struct graph *graph, struct match *match, long node);
/* Multiplies a copy of the filter, and computes the bias; either may be NULL. Returns 0 if there is no memory. */
int folded(const struct graph *graph, const struct match *match, float *filter, float *bias);
/* The longest part of what begins with a convolution that the library has a kernel for. */
void find_match(const struct graph *graph, size_t convolution, struct match *best);

#endif
