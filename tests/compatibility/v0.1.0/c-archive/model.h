/* model.h: convolution kernels of model.bundle, for x86-64, by tvmconv 0.1.0. Functions return 0, or an error's
 * number. They may be called from several threads. See docs/c.md of tvmconv. */
#ifndef model_H
#define model_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return. */
enum {
  model_OK = 0,
  model_ERROR_CPU = 1, /* this CPU lacks features that the kernel was built for */
  model_ERROR_ARGUMENT = 2, /* an argument is NULL, not aligned to its elements, or out of range */
  model_ERROR_MEMORY = 3, /* the allocator has no memory */
  model_ERROR_WORKSPACE = 4, /* the workspace is too small for so many threads */
  model_ERROR_THREADS = 5, /* the hook for threads failed, or did not run every task once */
  model_ERROR_FILTERS = 6, /* the file of filters is not open, cannot be read, or belongs to another library */
  model_ERROR_TILES = 7, /* the system does not let this process use AMX's tiles */
  model_ERROR_KERNEL = 8 /* the kernel refused its arguments: an error in tvmconv */
};

/* A text for what a function returned, which stays valid. */
const char *model_error_string(int status);

/* 1 if this CPU runs all kernels, else 0: functions of those that it does not run return model_ERROR_CPU. The kernels are for
 * x86-64-v3. */
int model_supported(void);

/* Arrays best begin here; they must be aligned to their elements. */
#define model_ALIGNMENT 64

/* Runs task(argument, index) once for each index from 0 to count - 1, at the same time or not, in any threads, and returns 0 when
 * all have returned; another number if it cannot. Tasks need 1024 KiB of stack. */
typedef int (*model_parallel_for)(void *context, int count, void (*task)(void *argument, int index), void *argument);

/* What runs the tasks of calls: fn, up to `threads` of them at a time. NULL: the calling thread, in `threads` shares.
 * Set hooks before kernels are called. */
int model_set_parallel_for(model_parallel_for fn, void *context, int threads);

/* What gives workspaces to calls that bring none, from any thread; NULL and NULL: malloc. `allocate` returns NULL if it cannot. */
int model_set_allocator(void *(*allocate)(void *context, size_t bytes, size_t alignment),
    void (*release)(void *context, void *block), void *context);

/* How one call is to be made, for the functions that end in _with. Zeros: as the hooks say. */
typedef struct model_call {
  model_parallel_for parallel_for; /* NULL: the hook's */
  void *context;
  int threads;                 /* tasks at a time; 0: the hook's */
  void *workspace;             /* NULL: the allocator's; else at least ..._workspace_bytes(threads), of this call alone */
  size_t workspace_bytes;
} model_call;

/* All kernels by their signatures, for programs that choose when they run. */
typedef struct model_array {
  const char *name, *type; /* "data", "filter", "bias", "scale", "slope", "residual", "output"; "f32", "f16", "bf16" */
  size_t elements, bytes;
} model_array;
typedef struct model_kernel {
  const char *name, *signature;
  int inputs;               /* data, filter and so on, as in the function's arguments */
  const model_array *arrays; /* of the inputs, then of the output */
  int (*run)(const model_call *call, const void *const *inputs, void *output);
  int (*run_packed)(const model_call *call, const void *const *inputs, void *output);
  int (*pack)(const void *filter, void *packed);
  size_t (*packed_bytes)(void);
  size_t (*workspace_bytes)(int threads);
  size_t (*packed_workspace_bytes)(int threads);
} model_kernel;
extern const model_kernel *const model_kernels[];
extern const int model_kernel_count;
const model_kernel *model_find(const char *signature); /* NULL if there is none */


/* conv2d-n1-i4x8x8-o8x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias-relu
 * data [1, 4, 8, 8], filter [8, 4, 3, 3], bias [8] -> output [1, 8, 8, 8]; winograd4 for x86-64-v3. */
#define model_conv2d_4x8x8_8_3x3_ncx_bias_relu_DATA_ELEMENTS 256
#define model_conv2d_4x8x8_8_3x3_ncx_bias_relu_FILTER_ELEMENTS 288
#define model_conv2d_4x8x8_8_3x3_ncx_bias_relu_BIAS_ELEMENTS 8
#define model_conv2d_4x8x8_8_3x3_ncx_bias_relu_OUTPUT_ELEMENTS 512
#define model_conv2d_4x8x8_8_3x3_ncx_bias_relu_PACKED_BYTES 1152 /* at most; model_conv2d_4x8x8_8_3x3_ncx_bias_relu_packed_bytes() on this CPU */
int model_conv2d_4x8x8_8_3x3_ncx_bias_relu(const float *data, const float *filter, const float *bias, float *output);
int model_conv2d_4x8x8_8_3x3_ncx_bias_relu_pack(const float *filter, void *packed);
int model_conv2d_4x8x8_8_3x3_ncx_bias_relu_packed(const float *data, const void *packed, const float *bias, float *output);
int model_conv2d_4x8x8_8_3x3_ncx_bias_relu_with(const model_call *call, const float *data, const float *filter, const float *bias, float *output);
int model_conv2d_4x8x8_8_3x3_ncx_bias_relu_packed_with(const model_call *call, const float *data, const void *packed, const float *bias, float *output);
size_t model_conv2d_4x8x8_8_3x3_ncx_bias_relu_packed_bytes(void);
size_t model_conv2d_4x8x8_8_3x3_ncx_bias_relu_workspace_bytes(int threads);
size_t model_conv2d_4x8x8_8_3x3_ncx_bias_relu_packed_workspace_bytes(int threads);

/* conv2d-n1-i8x4x4-o4x4x4-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32
 * data [1, 8, 4, 4], filter [4, 8, 1, 1] -> output [1, 4, 4, 4]; planar for x86-64-v3. */
#define model_conv2d_8x4x4_4_1x1_ncx_DATA_ELEMENTS 128
#define model_conv2d_8x4x4_4_1x1_ncx_FILTER_ELEMENTS 32
#define model_conv2d_8x4x4_4_1x1_ncx_OUTPUT_ELEMENTS 64
#define model_conv2d_8x4x4_4_1x1_ncx_PACKED_BYTES 128 /* at most; model_conv2d_8x4x4_4_1x1_ncx_packed_bytes() on this CPU */
int model_conv2d_8x4x4_4_1x1_ncx(const float *data, const float *filter, float *output);
int model_conv2d_8x4x4_4_1x1_ncx_pack(const float *filter, void *packed);
int model_conv2d_8x4x4_4_1x1_ncx_packed(const float *data, const void *packed, float *output);
int model_conv2d_8x4x4_4_1x1_ncx_with(const model_call *call, const float *data, const float *filter, float *output);
int model_conv2d_8x4x4_4_1x1_ncx_packed_with(const model_call *call, const float *data, const void *packed, float *output);
size_t model_conv2d_8x4x4_4_1x1_ncx_packed_bytes(void);
size_t model_conv2d_8x4x4_4_1x1_ncx_workspace_bytes(int threads);
size_t model_conv2d_8x4x4_4_1x1_ncx_packed_workspace_bytes(int threads);

/* All layers: nodes of models with their filters. */
typedef struct model_layer {
  const char *name, *node, *model;
  const model_kernel *kernel;
  int inputs; /* data, and if it takes that a residual */
  int (*run)(const model_call *call, const void *const *inputs, void *output);
  size_t (*workspace_bytes)(int threads);
} model_layer;
extern const model_layer *const model_layers[];
extern const int model_layer_count;


/* first of model.onnx, which computes r:
 * data [1, 4, 8, 8] -> output [1, 8, 8, 8], by conv2d_4x8x8_8_3x3_ncx_bias_relu. */
int model_first(const float *data, float *output);
int model_first_with(const model_call *call, const float *data, float *output);
size_t model_first_workspace_bytes(int threads);

/* second of model.onnx, which computes y:
 * data [1, 8, 4, 4] -> output [1, 4, 4, 4], by conv2d_8x4x4_4_1x1_ncx. */
int model_second(const float *data, float *output);
int model_second_with(const model_call *call, const float *data, float *output);
size_t model_second_workspace_bytes(int threads);
#ifdef __cplusplus
}
#endif

#endif
