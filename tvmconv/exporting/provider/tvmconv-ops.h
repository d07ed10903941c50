/* Operations between kernels, on tensors whose channels lie last, compiled once for each set of vector instructions. */
#ifndef TVMCONV_OPS_H
#define TVMCONV_OPS_H

#include "levels.h"
#include "tvmconv-graph.h"

enum op_kind { OP_KERNEL, OP_MAP, OP_POOL, OP_REDUCE, OP_JOIN, OP_PART, OP_SHUFFLE, OP_STRETCH, OP_ACROSS, OP_TO_LAST, OP_TO_FIRST };
enum pooling { MAXIMUM, AVERAGE, AVERAGE_OF_ALL };

/* A step of a map: x * a + b by channel, a tensor of the same shape, one number for each image and channel, or an activation. */
enum map_kind { AFFINE, PLUS, MINUS, TAKEN_FROM, TIMES, OVER, GATED, SHIFTED, SLOPED, FUNCTION };
struct map_step {
  enum map_kind kind;
  struct step function;
  float *factors, *terms; /* of each channel; of SLOPED, factors alone */
  int operand;            /* the number of the array that it takes */
};

/* An operation. The arrays are its inputs, then its output; `rows` is what tasks share. */
struct op {
  enum op_kind kind;
  int type, array_count, *arrays;
  int64_t rows, batch, channels, pixels; /* of the output */
  struct map_step *steps;
  int step_count;
  struct problem window;
  enum pooling pooling;
  int64_t *parts;       /* channels of each input of a concatenation */
  int64_t pitch;        /* channels from a pixel to the next: of the data of a map or a part, of the output of a concatenation */
  int64_t from, groups; /* of a part its first channel, of a concatenation the output's; of a reduction its pixels */
  float alpha, beta, bias;
  const tvmconv_name_kernel *kernel;
  void *fixed[OPERANDS]; /* NULL: the next array */
  int packed;
};

/* The rows of a reduction, for each image: of so many channels each. */
enum { REDUCED = 64 };
static inline int64_t reduced_rows(int64_t channels) { return (channels + REDUCED - 1) / REDUCED; }

/* Computes rows of an operation, for the vectors of each level. */
#define DECLARE_ROWS(level) \
  void tvmconv_name_rt_rows_##level(const struct op *op, char *const *arrays, int64_t begin, int64_t end);
LEVELS(DECLARE_ROWS)

#endif
