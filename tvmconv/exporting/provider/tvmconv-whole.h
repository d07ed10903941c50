/* A model as a whole: a network that `tvmconv compile` makes is in the library, too, and computes all of a graph. */
#ifndef TVMCONV_WHOLE_H
#define TVMCONV_WHOLE_H

#include "tvmconv-graph.h"

/* An input or output. */
struct tensor {
  const char *name;
  int type, rank;
  const int64_t *dims;
};
struct network {
  int there, any; /* any: it may be asked for any graph, by who measures it */
  uint64_t graph; /* the identity of its own */
  int input_count, output_count;
  const struct tensor *tensors; /* the inputs, then the outputs */
};
extern const struct network tvmconv_name_rt_network;

/* A number that only the same nodes, attributes, shapes and constants have; 0: it cannot be told. */
uint64_t identity_of(const struct graph *graph);
/* NULL, or why the network does not have the inputs and outputs of a graph. */
const char *unlike(const struct graph *graph);

struct whole;
ort_status *make_whole(int threads, const ort_node *fused, struct whole **whole);
void free_whole(struct whole *whole);
ort_status *run_whole(const struct whole *whole, ort_context *context);

/* The loops of this thread's later calls of a network are the session's; NULL: no loops come. */
void tvmconv_name_rt_by(const ort_context *context);

#endif
