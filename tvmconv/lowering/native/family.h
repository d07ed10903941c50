/* Kernels of blocks, by which a family computes any extents (family.c). */
#include <stdint.h>
#include <tvm/ffi/c_api.h>

enum { MOST_AXES = 3, MOST_BLOCKS = 8 /* as in lowering/cpu/blocks.py */ };

typedef int (*Function)(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

/* A layout that filters are packed to, from an element of the packed filter on. */
typedef struct {
  Function pack; /* NULL: it is the filter as it is */
  int64_t offset;
  DLDataType type; /* of as many bits as that of the packed filter */
  int axes;
  int64_t shape[MOST_AXES + 2];
} Layout;

/* A kernel of one block: so many outputs along each axis, of so many inputs, without padding; whether inputs and outputs may be parts of
 * larger images, and whether it sums given ranges of taps of each axis. Costs are in any unit: `cost` of a call, `sum_cost` of
 * its sums by all taps, `copy_cost` of a copy of its inputs. Beside arrays it takes the extents of the images that data and output are
 * parts of, the first tap along each axis, and the one after the last. */
typedef struct {
  Function function;
  int64_t outputs[MOST_AXES], inputs[MOST_AXES];
  int data_in_image, output_in_image, by_taps;
  double cost, sum_cost, copy_cost;
  int layout; /* which of the family's it reads */
} Block;

/* Static facts of a family. Along an axis, block outputs begin `step` apart where inputs begin 1 apart (a transposed convolution's
 * stride), or the reverse; `span` is from an output's first input to its last, of so many taps, `dilation` apart. `pads` are those of
 * blocks' problems, of a transposed convolution. */
typedef struct {
  int rank, channels_last, transposed;
  int flat; /* whether all pixels are one row of the last axis: taps, strides and pads are 1, 1 and 0 */
  int zero; /* byte of padding: integers' zero point */
  int64_t strides[MOST_AXES], spans[MOST_AXES], taps[MOST_AXES], dilations[MOST_AXES], pads[MOST_AXES];
  int operands, residual; /* number of inputs; which of them is the residual, 0: none */
  int blocks;
  const Block* block;
  int layouts; /* none: filters are read in place */
  const Layout* layout;
  int64_t packed; /* elements of a packed filter, and their type */
  DLDataType packed_type;
} Family;

/* A function, not data: Windows' compilers read data through a pointer, of which a library of several families would have one. */
const Family* tvmconv_family(void);
