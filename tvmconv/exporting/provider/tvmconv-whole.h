/* Whole models, or their largest parts: the library holds compiled networks, each of which computes some tensors of a graph from
 * others. */
#ifndef TVMCONV_WHOLE_H
#define TVMCONV_WHOLE_H

#include <tvm/ffi/c_api.h>

#include "tvmconv-graph.h"

/* An input or output. Dims below 0 are free; an input's -1 - n is extent n. */
struct tensor {
  const char *name;
  int type, rank;
  const int64_t *dims;
};
/* A free extent. */
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
  size_t arena;                 /* bytes that a call needs; with free extents, `measure` returns them */
  network_function *open, *close, *measure, *run;
  int extent_count;
  const struct extent *extents;
};
/* Networks; among those for one graph, the target with the most features comes first. */
extern const struct network tvmconv_name_rt_networks[];
extern const int tvmconv_name_rt_network_count;

/* The networks found for a graph's parts; and for each network of the library why its part is not claimed, NULL if it is, or if no
 * part has its identity. Both arrays have room for all of the library's networks. */
struct parts {
  const struct network **networks;
  int count;
  const char **reasons;
  const char *why; /* why none was found */
};

/* Computes the identity of a part (a byte for each node, not 0 if it is in the part): a hash of its nodes, attributes, shapes and
 * constants; 0: it has none. */
ort_status *identity_of(const struct graph *graph, const unsigned char *part, uint64_t *identity);
/* Finds the part that computes a network's outputs from its inputs, by their names alone, and its identity. */
ort_status *part_of(const struct network *ends, const struct graph *graph, unsigned char *part, uint64_t *identity);
/* Finds the identity of a whole graph, or if `outputs` is not NULL of the part between inputs and outputs, names one a line. */
ort_status *find_identity(const struct graph *graph, const char *inputs, const char *outputs, uint64_t *identity);
/* Records hash and identity of a graph (tvmconv_provider_graphs). */
void note_graph(uint64_t graph, uint64_t identity);
/* Finds networks for disjoint parts of a graph on this CPU, and the number of each node's network, from 1. `list` restricts them to
 * identities, numbers separated by commas; NULL: all. */
ort_status *find_networks(const struct graph *graph, const char *list, struct parts *found, int *owners);
/* Returns whether a text is such a list. */
int is_list(const char *text);
/* Returns a network whose part the graph has by its names, but that is not claimed, and why; NULL: there is none. */
const struct network *missing_part(const struct graph *graph, const char *list, const struct parts *found, const int *owners, const char **why);
/* Return whether this CPU runs one of the networks; or the code for a target (tvmconv/exporting/native/runtime.c). */
int runs_networks(void);
int tvmconv_name_rt_runs(int target);

struct whole;
/* Opens the network that has a fused node's outputs. */
ort_status *make_whole(const struct network *const *networks, int count, int threads, const ort_memory *memory, const ort_node *fused,
                       struct whole **whole);
void free_whole(struct whole *whole);
ort_status *run_whole(const struct whole *whole, ort_context *context);

/* Sets the session whose threads run the loops of this thread's network calls; NULL: none. */
void tvmconv_name_rt_by(const ort_context *context);

#endif
