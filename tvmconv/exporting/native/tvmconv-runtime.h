/* Declarations that the files of an archive share. `tvmconv_name` becomes the archive's name. */
#ifndef TVMCONV_RUNTIME_H
#define TVMCONV_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tvmconv_name.h"

/* Arguments of kernels, as in dlpack/dlpack.h and tvm/ffi/c_api.h. */
struct tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct any {
  int32_t type;
  uint32_t padding;
  union {
    int64_t integer;
    void *pointer;
  } value;
};
enum { ON_CPU = 1, INTEGER = 1, TENSOR = 7 };
typedef int function(void *self, const struct any *arguments, int32_t count, struct any *result);

/* A contiguous array, as a kernel takes it. */
struct argument {
  const int64_t *shape;
  size_t elements;
  int32_t rank;
  uint8_t code, bits;
};

/* Upper bound of a function's allocations: in a call, and in each task of a parallel loop. */
struct workspace {
  size_t shared, task;
};

/* A kernel for one of the archive's targets. If `pack` is NULL, it reads the filter in place. */
struct variant {
  uint32_t target;
  function *plain, *pack, *packed;
  struct workspace plain_workspace, pack_workspace, packed_workspace;
  struct argument packed_filter;
};

enum { MOST_AXES = 3 };

/* A kernel: inputs (data and filter first), then the output; its variants, the best first; for a family, further integer arguments. */
struct kernel {
  int inputs;
  const struct argument *arguments;
  int variants;
  const struct variant *variant;
  const int64_t *numbers;
  int number_count;
};

enum entry { PLAIN, PACKED };

/* Returns whether this CPU runs the code for a target. */
int tvmconv_name_rt_runs(int target);
/* Returns the best variant that this CPU runs, NULL if there is none. */
const struct variant *tvmconv_name_rt_variant(const struct kernel *kernel);

/* Computes from arrays in the order of the kernel's arguments; `call` may be NULL. */
int tvmconv_name_rt_run(const struct kernel *kernel, enum entry entry, const tvmconv_name_call *call,
                        const void *const *arrays);
int tvmconv_name_rt_pack(const struct kernel *kernel, const void *filter, void *packed);
size_t tvmconv_name_rt_packed_bytes(const struct kernel *kernel);
size_t tvmconv_name_rt_workspace_bytes(const struct kernel *kernel, enum entry entry, int threads);

/* Functions that kernels call: errors, AMX's tiles, and those that `__TVMBackend...` point to. */
void tvmconv_name_rt_raise(const char *kind, const char **parts, int32_t count);
int tvmconv_name_rt_allow_tiles(void);
int tvmconv_name_rt_launch(int (*task)(int, void *, void *), void *data, int count);
int tvmconv_name_rt_barrier(int task, void *environment);
void *tvmconv_name_rt_allocate(int device_type, int device, uint64_t bytes, int code, int bits);
int tvmconv_name_rt_release(int device_type, int device, void *block);

/* The archive's own threads (one of pool_*.c). */
int tvmconv_name_rt_pool_threads(void);
int tvmconv_name_rt_pool_for(void *context, int count, void (*task)(void *argument, int index), void *argument);

/* Returns whether the environment hides a feature, by its name in a list separated by spaces. */
static inline int hidden_feature(const char *name) {
  const char *list = getenv("TVMCONV_HIDDEN_FEATURES");
  size_t length = strlen(name);
  for (const char *at = list; at != NULL && (at = strstr(at, name)) != NULL; at += length)
    if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return 1;
  return 0;
}

/* Bits of the archive's targets whose features this CPU has; and the sets of targets that its kernels have variants for. */
uint32_t tvmconv_name_rt_detect(void);
extern const uint32_t tvmconv_name_rt_covers[];
extern const int tvmconv_name_rt_covers_count;

#endif
