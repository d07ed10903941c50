/* onnxruntime's graphs as a provider reads them, and the kernels that compute parts of them. */
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

/* A convolution with explicit numbers, as tvmconv.problem has it, of data and filters as ONNX has them. */
struct problem {
  int transposed, rank, type, bias;
  int64_t batch, in_channels, out_channels, groups;
  int64_t in[AXES], out[AXES], taps[AXES], strides[AXES], dilations[AXES], begin[AXES], end[AXES];
  int step_count;
  struct step steps[MOST_STEPS];
};

/* Problems that tvmconv_name_kernels compute, one each. */
extern const struct problem tvmconv_name_rt_problems[];

/* Claims of a provider: nothing; each convolution with what follows it; or networks. */
enum claims { NOTHING, CONVOLUTIONS, NETWORK };
/* Claims that were measured to be the fastest for a graph, by the hash of its convolutions. */
struct decision {
  uint64_t graph;
  enum claims claims;
};
extern const struct decision tvmconv_name_rt_decisions[];
extern const int tvmconv_name_rt_decision_count;

struct node {
  const ort_node *node;
  const char *type;
  size_t input_count, output_count, implicit_count; /* without the last outputs that have no name */
  const ort_value_info **inputs, **outputs; /* NULL: an input that is left out */
  const ort_value_info **implicit;          /* what graphs within it read */
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
  const ort_value_info **kept;  /* what is read outside of this graph, as far as a fused node says so */
  size_t kept_count;
};

/* A convolution and what follows it, as far as a kernel computes it. */
enum operand_kind { DATA, FILTER, BIAS, SCALES, SLOPE, RESIDUAL, OPERANDS };
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

static inline int is_floating(int type) { return type == ORT_FLOAT || type == ORT_FLOAT16 || type == ORT_BFLOAT16; }

/* Numbers of such a type as f32. */
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

/* The inputs or outputs of a node, to be freed; NULL: there is no memory. */
const ort_value_info **values_of(const ort_node *node, ort_status *(*counting)(const ort_node *, size_t *),
                                 ort_status *(*reading)(const ort_node *, const ort_value_info **, size_t), size_t *count);
int read_graph(const ort_graph *graph, struct graph *read);
void free_graph(struct graph *read);
int is_convolution(const struct node *node);
const char *name_of(const ort_value_info *value);
/* The only reader of a node's first output, -1 if there are none or several, or the output is read outside of the graph, too. */
long only_reader(const struct graph *graph, long node);
size_t readers_of(const struct graph *graph, const char *name, const struct use **first);
/* The node that computes a tensor, -1 if none of the graph does. */
long writer_of(const struct graph *graph, const char *name);
/* Returns whether a tensor is read outside of the graph. */
int is_kept(const struct graph *graph, const ort_value_info *value);

/* The type and dimensions of a tensor; -1: not a number. Returns the rank, or -1. */
int shape_of(const ort_value_info *value, int *type, int64_t *dims, int most);
/* The elements of a fixed tensor of numbers, as f32, NULL if it is none or there are more than `most`; to be freed. */
float *fixed_numbers(const ort_value_info *value, size_t most, size_t *count);
/* The elements of a tensor that callers cannot change; NULL: it is none, or has no elements. */
const void *fixed_data(const ort_value_info *value);
int is_constant_tensor(const ort_value_info *value);
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
/* Returns whether a tensor is fixed, and one number for each channel of the output that it is broadcast to, or for all. */
int is_per_channel(const ort_value_info *value, const struct problem *problem);

/* Takes the next step after a tensor; returns 0 if there is none. */
int follow(const struct graph *graph, struct match *match);
/* Takes a node that goes into the filter and the bias, if it is one. */
int fold(const struct graph *graph, struct match *match, long node);
/* Multiplies a copy of the filter, and computes the bias; either may be NULL. Returns 0 if there is no memory. */
int folded(const struct graph *graph, const struct match *match, float *filter, float *bias);
/* The longest part of what begins with a convolution that the library has a kernel for. */
void find_match(const struct graph *graph, size_t convolution, struct match *best);

/* Parts of a graph that the library has kernels for, in no order. */
struct matches {
  struct match *list;
  size_t count, convolutions, missing, first_missing; /* convolutions without a kernel, and the first node */
  double ours, theirs;                                /* multiply-adds with and without a kernel */
  const char *reason;
};
/* Returns 0 if there is no memory. */
int find_matches(struct graph *graph, struct matches *found);
/* A number that two graphs with the same convolutions have in common. */
uint64_t hash_of(const struct graph *graph);

#endif
