/* Parts of a graph that are computed as one: what a provider claims, and how it is run. Between kernels, channels lie last. */
#ifndef TVMCONV_PLAN_H
#define TVMCONV_PLAN_H

#include "tvmconv-graph.h"
#include "tvmconv-ops.h"

/* A tensor of images and channels; `pixels` of an image, which lie in up to three axes. */
struct extent {
  int type, rank;
  int64_t dims[AXES + 2], batch, channels, pixels;
};
int read_extent(const ort_value_info *value, struct extent *extent);
int same_extent(const struct extent *a, const struct extent *b);

/* Kinds of units, by their computation; OTHER: by onnxruntime. */
enum unit_kind { OTHER, KERNEL, MAP, POOL, REDUCE, JOIN, PART, SHUFFLE, STRETCH, ACROSS, SAME };

/* A step of a map, and the tensor that it takes. */
struct mapped {
  struct map_step step;
  const ort_value_info *other;
  size_t node;
};

/* Nodes that are computed together, in the graph's order. */
struct unit {
  enum unit_kind kind;
  size_t nodes[MOST_NODES];
  int node_count, level, group;
  struct match *match; /* of a kernel */
  const ort_value_info *input, *output;
  struct mapped steps[MOST_STEPS];
  int step_count;
  struct problem window;
  enum pooling pooling;
  int64_t groups;
  float alpha, beta, bias;
};
struct units {
  struct unit *list; /* each after those whose results it reads */
  size_t count;
  int *of_node; /* the unit of each node */
  struct match *matches;
  size_t convolutions, missing, first_missing; /* how many, and without a kernel: how many, and the first node */
  double ours, theirs;                         /* multiply-adds with and without a kernel */
  const char *reason;
};
/* All units of a graph; of layout CHANNELS_FIRST, kernels alone. Returns 0 if there is no memory or nodes are in no order. */
int read_units(struct graph *graph, enum layout layout, struct units *units);
void free_units(struct units *units);
/* Gives each unit that is worth claiming the number of its group, others -1; returns the count of groups, -1 without memory. */
int find_groups(const struct graph *graph, enum layout layout, struct units *units);

/* Readers of nodes between kernels: each describes the node, with what follows it. Returns whether it is ours. */
int read_map(const struct graph *graph, size_t node, struct unit *unit);
int read_window_unit(const struct graph *graph, size_t node, struct unit *unit);
int read_move(const struct graph *graph, size_t node, struct unit *unit);

struct plan;
/* The plan of a graph that was claimed, for a fused node with these inputs and outputs. */
ort_status *make_plan(struct graph *graph, enum layout layout, int threads, const ort_node *fused, struct plan **plan);
void free_plan(struct plan *plan);
ort_status *run_plan(const struct plan *plan, const ort_memory *memory, ort_context *context);
/* Bytes of the session's arena for one call, from a cache line on; they are to be given back, whatever became of them. */
struct block {
  ort_allocator *allocator;
  void *taken;
  char *begin;
};
ort_status *take_block(ort_context *context, const ort_memory *memory, size_t bytes, struct block *block);
/* Returns the status that is given, or what giving back the block says. */
ort_status *give_block(struct block *block, ort_status *status);
/* The data of a fused node's input. A model may declare shapes that its tensors have not, and what is compiled is for its shapes
 * alone: an error if those of `what` are others. rank -1: any. */
ort_status *read_input(ort_context *context, size_t number, int rank, const int64_t *dims, const char *what, void **data);

/* A tensor of a plan. */
enum home { IN_BUFFER, IN_INPUT, IN_OUTPUT };
struct value {
  const char *name; /* while the plan is made */
  struct extent extent;
  enum home home;
  size_t number, offset, bytes; /* of the fused node's input or output; in the buffer */
  int raw, alias, first, last;  /* as onnxruntime has it; the value whose memory it is; operations that touch it */
  int placed;
};
struct plan {
  struct value *values;
  int value_count;
  struct op *ops;
  int op_count, threads;
  size_t buffer, workspace; /* bytes of both, the workspace last */
  struct extent *inputs;    /* the shapes that kernels are for; of rank 0: any */
};
void *allocate(size_t bytes);
int root_of(const struct plan *plan, int value);
void share_concatenations(struct plan *plan);
void place_values(struct plan *plan);

#endif
