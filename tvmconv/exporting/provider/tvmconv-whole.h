/* Models as wholes, or their largest parts: networks that `tvmconv compile` makes are in the library, too, each of which computes some
 * tensors of a graph of others. */
#ifndef TVMCONV_WHOLE_H
#define TVMCONV_WHOLE_H

#include <tvm/ffi/c_api.h>

#include "tvmconv-graph.h"

/* An input or output. Of a network of free extents dims below 0 are, in inputs -1 - n is extent n. */
struct tensor {
  const char *name;
  int type, rank;
  const int64_t *dims;
};
/* An extent that each call gives. */
struct extent {
  const char *name;
  int64_t least, greatest, multiple;
};
/* Functions of a network's library (tvmconv/network/emit/native/executor.c, tvmconv/lowering/native/launcher.c). */
typedef int network_function(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result);
/* A network for a part of one graph and one of the library's targets. */
struct network {
  uint64_t graph; /* the identity of the part */
  int target;
  int input_count, output_count;
  const struct tensor *tensors; /* the inputs, then the outputs */
  size_t arena;                 /* bytes that a call needs; of free extents each call's own */
  network_function *open, *close, *measure, *run;
  int extent_count;
  const struct extent *extents;
};
/* Networks; of those for one graph, that for the target with the most features comes first. */
extern const struct network tvmconv_name_rt_networks[];
extern const int tvmconv_name_rt_network_count;

/* The networks of a graph's parts, and for each of the library's why it is not among them; NULL: it is, or no part is like its own.
 * Both have room for all of the library's. */
struct parts {
  const struct network **networks;
  int count;
  const char **reasons;
  const char *why; /* there are none */
};

/* A part of a graph is a byte for each node, not 0 if it is of the part. A number that only the same nodes, attributes, shapes and
 * constants have; 0: it cannot be told. */
ort_status *identity_of(const struct graph *graph, const unsigned char *part, uint64_t *identity);
/* Sets the part that computes a network's outputs of its inputs, of which the names count alone, and its identity. */
ort_status *part_of(const struct network *ends, const struct graph *graph, unsigned char *part, uint64_t *identity);
/* The same of all of a graph, or of a part whose inputs and outputs stand in lines; NULL: there are none. */
ort_status *find_identity(const struct graph *graph, const char *inputs, const char *outputs, uint64_t *identity);
/* Keeps hash and identity of a graph for who asks for them. */
void note_graph(uint64_t graph, uint64_t identity);
/* Finds the networks of a graph's parts for this CPU, which have no nodes in common, and the number of each node's, from 1. Those in
 * a list alone count, numbers between commas; NULL: all. */
ort_status *find_networks(const struct graph *graph, const char *list, struct parts *found, int *owners);
/* Returns whether a text is such a list. */
int is_list(const char *text);
/* A network for a part that is in the graph by its names and is not claimed, and why; NULL: there is none. */
const struct network *missing_part(const struct graph *graph, const char *list, const struct parts *found, const int *owners, const char **why);
/* Return whether this CPU runs one of the networks, or the code for a target (tvmconv/exporting/native/runtime.c). */
int runs_networks(void);
int tvmconv_name_rt_runs(int target);

struct whole;
/* Makes what runs a fused node, of the network that has its outputs. */
ort_status *make_whole(const struct network *const *networks, int count, int threads, const ort_memory *memory, const ort_node *fused,
                       struct whole **whole);
void free_whole(struct whole *whole);
ort_status *run_whole(const struct whole *whole, ort_context *context);

/* The loops of this thread's later calls of a network are the session's; NULL: no loops come. */
void tvmconv_name_rt_by(const ort_context *context);

#endif
