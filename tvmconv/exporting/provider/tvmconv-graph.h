/* onnxruntime's graphs, and their matching with kernels. */
#ifndef TVMCONV_GRAPH_H
#define TVMCONV_GRAPH_H

#include <string.h>

#include "tvmconv-ort.h"
#include "tvmconv_name.h"

enum { AXES = 3, MOST_STEPS = 12, MOST_NODES = 40, MOST_FOLDS = 6 };

/* The steps of an epilogue. relu is a clip from 0. */
enum kind { SCALE, ADD, CLIP, LEAKY, PRELU, ELU, SIGMOID, TANH, HARDSIGMOID, SILU, HARDSWISH, GELU, GELU_TANH };
struct step {
  enum kind kind;
  float a, b;
};

/* A convolution with every number explicit (tvmconv.problem), in ONNX's layouts. */
struct problem {
  int transposed, rank, type, bias;
  int64_t batch, in_channels, out_channels, groups;
  int64_t in[AXES], out[AXES], taps[AXES], strides[AXES], dilations[AXES], begin[AXES], end[AXES];
  int step_count;
  struct step steps[MOST_STEPS];
};

/* The problem of each of tvmconv_name_kernels. */
extern const struct problem tvmconv_name_rt_problems[];

/* Claims of a provider: nothing; each convolution with what follows it; or networks. */
enum claims { NOTHING, CONVOLUTIONS, NETWORK };
/* The claims measured to be the fastest for a graph, by the hash of its convolutions. */
struct decision {
  uint64_t graph;
  enum claims claims;
};
extern const struct decision tvmconv_name_rt_decisions[];
extern const int tvmconv_name_rt_decision_count;

struct node {
  const ort_node *node;
  const char *type;
  size_t input_count, output_count, implicit_count; /* without trailing outputs that have no name */
  const ort_value_info **inputs, **outputs; /* an optional input that is absent is NULL */
  const ort_value_info **implicit;          /* outer tensors that its subgraphs read */
  int taken;
};
struct use {
  const char *name;
  size_t node;
};
struct uses {
  struct use *list; /* by names */
  size_t count;
};
struct graph {
  struct node *nodes; /* each after those whose results it reads */
  size_t count;
  struct uses readers, writers; /* of all tensors */
  const ort_value_info **kept;  /* outputs of the fused node whose graph this is; NULL: it is no such graph */
  size_t kept_count;
};

/* A convolution and the nodes after it that one kernel computes. */
enum operand_kind { DATA, FILTER, BIAS, SCALES, SLOPE, RESIDUAL, OPERANDS };
struct match {
  const tvmconv_name_kernel *kernel; /* NULL: there is none */
  const char *reason;                /* why not */
  struct problem problem;
  size_t nodes[MOST_NODES];
  int node_count;
  size_t folds[MOST_FOLDS]; /* nodes folded into filter and bias, right after the convolution */
  int fold_count;
  const ort_value_info *operands[OPERANDS], *output;
};

static inline int is_floating(int type) { return type == ORT_FLOAT || type == ORT_FLOAT16 || type == ORT_BFLOAT16; }

/* Converts numbers of a floating type to f32. */
static inline void load(float *restrict to, const void *from, int64_t count, int type) {
  if (type == ORT_FLOAT) {
    memcpy(to, from, (size_t)count * sizeof *to);
  } else if (type == ORT_FLOAT16) {
    for (int64_t i = 0; i < count; ++i) to[i] = (float)((const _Float16 *)from)[i];
  } else {
    for (int64_t i = 0; i < count; ++i) {
      uint32_t wide = (uint32_t)((const uint16_t *)from)[i] << 16;
      memcpy(&to[i], &wide, sizeof wide);
    }
  }
}

/* Returns the inputs or outputs of a node, to be freed; NULL: there is no memory. */
const ort_value_info **values_of(const ort_node *node, ort_status *(*counting)(const ort_node *, size_t *),
                                 ort_status *(*reading)(const ort_node *, const ort_value_info **, size_t), size_t *count);
int read_graph(const ort_graph *graph, struct graph *read);
void free_graph(struct graph *read);
int is_convolution(const struct node *node);
const char *name_of(const ort_value_info *value);
/* The only reader of a node's first output, -1 if there are none or several, or the output is read outside of the graph, too. */
long only_reader(const struct graph *graph, long node);
size_t readers_of(const struct graph *graph, const char *name, const struct use **first);
/* Returns the node that computes a tensor, -1 if it is none of the graph's. */
long writer_of(const struct graph *graph, const char *name);
/* Returns whether a tensor is read outside of the graph. */
int is_kept(const struct graph *graph, const ort_value_info *value);

/* Finds the type and dimensions (-1: free) of a tensor. Returns the rank, or -1 if it is unknown or above `most`. */
int shape_of(const ort_value_info *value, int *type, int64_t *dims, int most);
/* Returns the elements of a constant floating tensor as f32, to be freed; NULL if it is none or has more than `most`. */
float *fixed_numbers(const ort_value_info *value, size_t most, size_t *count);
/* Returns the elements of a constant that callers cannot override; NULL: it is none, or has no elements. */
const void *fixed_data(const ort_value_info *value);
int is_constant_tensor(const ort_value_info *value);
int64_t integer_attribute(const struct node *node, const char *name, int64_t none);
float float_attribute(const struct node *node, const char *name, float none);
/* Returns the number of integers; -1 if there is no such attribute, -2 if there are more than `most`. */
int integers_attribute(const struct node *node, const char *name, int64_t *values, int most);
/* Returns 1, 0 if there is no such attribute, -1 if it does not fit. */
int text_attribute(const struct node *node, const char *name, char *text, size_t size);

/* Returns the multiply-adds of a problem; 0 if its shape is not known. */
double operations(const struct problem *problem);
/* Returns the other input of a node with two inputs, NULL unless exactly one of them is `name`. */
const ort_value_info *other_input(const struct node *node, const char *name);
/* Returns whether a tensor is a constant with one number, or one for each output channel, that it is broadcast along. */
int is_per_channel(const ort_value_info *value, const struct problem *problem);

/* Extends a match by the next step of the epilogue; returns 0 if there is none. */
int follow(const struct graph *graph, struct match *match);
/* Extends a match by a node that can be folded into filter and bias; returns 0 if it cannot. */
int fold(const struct graph *graph, struct match *match, long node);
/* Scales a copy of the filter and computes the bias by the folded nodes; either may be NULL. Returns 0 if there is no memory. */
int folded(const struct graph *graph, const struct match *match, float *filter, float *bias);
/* Finds the longest match of a convolution that the library has a kernel for. */
void find_match(const struct graph *graph, size_t convolution, struct match *best);

/* The matches of a graph, in no order. */
struct matches {
  struct match *list;
  size_t count, convolutions, missing, first_missing; /* convolutions without a kernel, and the first node */
  double ours, theirs;                                /* multiply-adds with and without a kernel */
  const char *reason;
};
/* Returns 0 if there is no memory. */
int find_matches(struct graph *graph, struct matches *found);
/* Returns a hash of a graph's convolutions. */
uint64_t hash_of(const struct graph *graph);

#endif
