/* Descriptions that tvmconv/lowering/cuda/linker.py generates for each kernel, and cuda_launcher.c reads. */
#ifndef TVMCONV_CUDA_LAUNCHER_H_
#define TVMCONV_CUDA_LAUNCHER_H_

#include <stdint.h>

/* A 3-D transposed convolution has up to eight windows, each of a few launches, and a fill. The arrays are data, filter,
 * bias, scale, slope, residual and output; a launch takes them and pieces of the workspace. Maps: of data, filter, and each
 * of 27 phases of the output. */
enum { TVMCONV_MAX_LAUNCHES = 64, TVMCONV_MAX_ARRAYS = 7, TVMCONV_MAX_ARGUMENTS = 12, TVMCONV_MAX_MAPS = 29 };

/* An array that the kernel takes, in the order of its arguments. */
struct tvmconv_array {
  const char* name;
  uint8_t type_code, bits; /* of DLDataType */
  int32_t ndim;
  int64_t shape[5];
};

/* Arguments of cuTensorMapEncodeTiled for an array, `offset` bytes after its beginning, by which kernels copy its boxes. The
 * contiguous axis is the first; `distances` are in bytes, of the axes after it. */
struct tvmconv_tensor_map {
  uint64_t offset;
  int32_t type, swizzle; /* CUtensorMapDataType, CUtensorMapSwizzle */
  uint32_t rank;
  uint64_t extents[5], distances[4];
  uint32_t box[5], steps[5];
};

/* A parameter of a device function: the array of this number, or if -1 the workspace, and an offset in bytes; or if there
 * are maps, these of the array, one after another. */
struct tvmconv_argument {
  int32_t array;
  uint64_t offset;
  int32_t num_maps;
  const struct tvmconv_tensor_map* maps;
};

struct tvmconv_launch {
  const char* function;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  int32_t num_arguments;
  struct tvmconv_argument arguments[TVMCONV_MAX_ARGUMENTS];
};

extern const int32_t tvmconv_num_arrays, tvmconv_num_launches;
extern const struct tvmconv_array tvmconv_arrays[];
extern const struct tvmconv_launch tvmconv_launches[];
extern const uint64_t tvmconv_workspace_bytes;
/* Text for messages: "sm_80, sm_90 and later", "sm_90a alone". */
extern const char tvmconv_architectures[];
extern const unsigned char tvmconv_fatbin[];

#endif
