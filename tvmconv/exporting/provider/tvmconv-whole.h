/* Models as wholes: networks that `tvmconv compile` makes are in the library, too, each of which computes all of a graph, or all that some
 * of its tensors need. */
#ifndef TVMCONV_WHOLE_H
#define TVMCONV_WHOLE_H

#include <tvm/ffi/c_api.h>

#include "tvmconv-graph.h"

/* An input or output. */
struct tensor {
  const char *name;
  int type, rank;
  const int64_t *dims;
};
/* Of a network's library (tvmconv/relax/native/network.c, tvmconv/lowering/native/launcher.c). */
typedef int network_function(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result);
/* A network for a part of one graph and one of the library's targets. */
struct network {
  uint64_t graph; /* the identity of the part */
  int target;
  int input_count, output_count;
  const struct tensor *tensors; /* the inputs, then the outputs */
  network_function *open, *close, *run;
};
/* Of networks for one graph, that for the target with the most features comes first. */
extern const struct network tvmconv_name_rt_networks[];
extern const int tvmconv_name_rt_network_count;

/* A part of a graph: a byte for each node, not 0 if it is of the part. These add the node that computes a tensor, and return whether there
 * is one; and all that nodes of the part need. */
int mark_output(const struct graph *graph, const char *name, unsigned char *part);
void mark_needed(const struct graph *graph, unsigned char *part);
/* A number that only the same nodes, attributes, shapes and constants have; 0: it cannot be told. */
uint64_t identity_of(const struct graph *graph, const unsigned char *part);
/* The same of all of a graph, or of what some tensors need, whose names stand in lines; sets the part. */
uint64_t told_identity(const struct graph *graph, const char *outputs, unsigned char *part);
/* Keeps hash and identity of a graph for who asks for them. */
void note_graph(uint64_t graph, uint64_t identity);
/* The network of a graph's part, which is set, for this CPU; NULL: there is none, and why. */
const struct network *find_network(const struct graph *graph, unsigned char *part, const char **why);
/* Whether this CPU runs one of the networks; what is for a target (tvmconv/exporting/native/runtime.c). */
int runs_networks(void);
int tvmconv_name_rt_runs(int target);

struct whole;
ort_status *make_whole(const struct network *network, int threads, const ort_node *fused, struct whole **whole);
void free_whole(struct whole *whole);
ort_status *run_whole(const struct whole *whole, ort_context *context);

/* The loops of this thread's later calls of a network are the session's; NULL: no loops come. */
void tvmconv_name_rt_by(const ort_context *context);

#endif
