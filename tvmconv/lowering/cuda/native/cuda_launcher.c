/* The function that callers see of a CUDA kernel, linked into every CUDA library of a bundle.
 *
 *     tvmconv_kernel(stream, workspace, data, filter[, bias][, scale][, slope][, residual], output)
 *
 * checks its arguments and enqueues the kernel's launches on `stream` (a CUstream as a number). It never waits for
 * the GPU. It reaches the driver by dlopen, so a library loads where there is none, and needs nothing but libc and
 * tvm-ffi. Code is loaded once a process, whatever the device and the context (a CUlibrary, CUDA 12).
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <tvm/ffi/c_api.h>

#include "cuda_launcher.h"

/* Declarations of cuda.h, which a machine that only links kernels need not have. */
typedef int CUresult, CUdevice;
typedef struct CUctx_st* CUcontext;
typedef struct CUlib_st* CUlibrary;
typedef struct CUkern_st* CUkernel;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
  CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
  CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0, /* zeros */
};
typedef struct {
  _Alignas(128) uint64_t opaque[16];
} CUtensorMap;

#define DRIVER(X)                                                                                                  \
  X(cuInit, (unsigned int flags))                                                                                  \
  X(cuGetErrorString, (CUresult error, const char** text))                                                         \
  X(cuDeviceGet, (CUdevice * device, int ordinal))                                                                 \
  X(cuDeviceGetAttribute, (int* value, int attribute, CUdevice device))                                            \
  X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                              \
  X(cuCtxGetDevice, (CUdevice * device))                                                                           \
  X(cuCtxPushCurrent_v2, (CUcontext context))                                                                      \
  X(cuCtxPopCurrent_v2, (CUcontext * context))                                                                     \
  X(cuThreadExchangeStreamCaptureMode, (int* mode))                                                                \
  X(cuLibraryLoadData, (CUlibrary * library, const void* code, void*, void**, unsigned, void*, void**, unsigned))  \
  X(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name))                                  \
  X(cuKernelSetAttribute, (int attribute, int value, CUkernel kernel, CUdevice device))                            \
  X(cuKernelGetFunction, (CUfunction * function, CUkernel kernel))                                                 \
  X(cuTensorMapEncodeTiled, (CUtensorMap * map, int type, uint32_t rank, void* address, const uint64_t* extents,   \
                             const uint64_t* distances, const uint32_t* box, const uint32_t* steps,                \
                             int interleave, int swizzle, int promotion, int fill))                                \
  X(cuLaunchKernel, (CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,              \
                     unsigned shared_bytes, CUstream stream, void** parameters, void** extra))
#define DECLARE(name, parameters) static CUresult(*name) parameters;
DRIVER(DECLARE)

/* ALIGNMENT: the widest vector that a thread loads. WORKSPACE_ALIGNMENT: what the offsets in the workspace count on. */
enum { MAX_DEVICES = 64, ALIGNMENT = 16, WORKSPACE_ALIGNMENT = 256 };
static CUkernel kernels[TVMCONV_MAX_LAUNCHES];
static atomic_bool found_driver, loaded;
static struct {
  atomic_bool found, retained, prepared;
  CUdevice device;
  CUcontext primary;
} devices[MAX_DEVICES];

__attribute__((format(printf, 2, 3))) static int fail(const char* kind, const char* format, ...) {
  char message[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof message, format, values);
  va_end(values);
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

/* Raise a driver's error, with a hint where a remedy is known. */
static int check(CUresult result, const char* what, const char* of, CUdevice device) {
  if (result == CUDA_SUCCESS) return 0;
  const char* text = NULL;
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || text == NULL) text = "unknown error";
  char hint[256] = "";
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU) {
    int major = 0, minor = 0;
    cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    snprintf(hint, sizeof hint, "; it is for %s, and this GPU is an sm_%d%d: build it for that too",
             tvmconv_architectures, major, minor);
  } else if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
    snprintf(hint, sizeof hint, "; the driver is older than the compiler that made this kernel: update the driver");
  } else if (result == CUDA_ERROR_NOT_INITIALIZED) {
    snprintf(hint, sizeof hint, "; CUDA does not work in a process forked after its first use: use spawn instead of fork");
  }
  return fail("RuntimeError", "%s%s failed with CUDA error %d, %s%s", what, of, result, text, hint);
}

/* Work that is done once, at the first call or at the first call on a device; after a failure the next call tries
 * again. Loading is forbidden while the thread captures a graph, unless its mode says otherwise. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int once(atomic_bool* done, int (*work)(int), int id) {
  if (atomic_load(done)) return 0;
  pthread_mutex_lock(&lock);
  int status = 0, mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (!atomic_load(done)) {
    const int relaxes = atomic_load(&found_driver);
    if (relaxes) cuThreadExchangeStreamCaptureMode(&mode);
    status = work(id);
    if (relaxes) cuThreadExchangeStreamCaptureMode(&mode);
    if (status == 0) atomic_store(done, 1);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

/* Another thread of the parent may have held the lock. */
static void after_fork(void) { pthread_mutex_init(&lock, NULL); }

__attribute__((constructor)) static void on_load(void) { pthread_atfork(NULL, NULL, after_fork); }

static int find_driver(int id) {
  (void)id;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == NULL)
    return fail("RuntimeError", "there is no NVIDIA driver (%s); this kernel needs one, and a GPU", dlerror());
#define FIND(name, parameters)                                                                                   \
  *(void**)&name = dlsym(driver, #name);                                                                         \
  if (name == NULL)                                                                                              \
    return fail("RuntimeError", "the NVIDIA driver has no %s: it is older than CUDA 12; update the driver", #name);
  DRIVER(FIND)
  return check(cuInit(0), "cuInit", "", 0);
}

static int find_device(int id) {
  return check(cuDeviceGet(&devices[id].device, id), "finding the GPU", "", 0);
}

static int load(int id) {
  CUlibrary library = NULL;
  const CUdevice device = devices[id].device;
  CUresult result = cuLibraryLoadData(&library, tvmconv_fatbin, NULL, NULL, 0, NULL, NULL, 0);
  if (check(result, "loading the kernel", "", device) != 0) return -1;
  for (int i = 0; i < tvmconv_num_launches; ++i) {
    const char* name = tvmconv_launches[i].function;
    if (check(cuLibraryGetKernel(&kernels[i], library, name), "looking up ", name, device) != 0) return -1;
  }
  return 0;
}

static int retain(int id) {
  return check(cuDevicePrimaryCtxRetain(&devices[id].primary, devices[id].device), "opening the GPU", "", 0);
}

/* Prepare a device, whose context is the current one, for its first launch. */
static int prepare(int id) {
  const CUdevice device = devices[id].device;
  for (int i = 0; i < tvmconv_num_launches; ++i) {
    const struct tvmconv_launch* launch = &tvmconv_launches[i];
    CUfunction function = NULL;
    /* Moves the code to the GPU; otherwise the first launch would. */
    if (check(cuKernelGetFunction(&function, kernels[i]), "loading ", launch->function, device) != 0) return -1;
    CUresult result = cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)launch->shared_bytes,
                                           kernels[i], device);
    if (check(result, "reserving the shared memory of ", launch->function, device) != 0) return -1;
  }
  return 0;
}

/* Make a context of device `id` the current one: the caller's if it is of that device, else the primary one, which is
 * what frameworks use. *pushed: whether it has to be popped. */
static int enter(int id, int* pushed) {
  if (once(&found_driver, find_driver, id) || once(&devices[id].found, find_device, id) || once(&loaded, load, id))
    return -1;
  CUdevice current = -1;
  const CUresult result = cuCtxGetDevice(&current);
  if (result != CUDA_ERROR_INVALID_CONTEXT && check(result, "reading the context", "", 0) != 0) return -1;
  if (result == CUDA_SUCCESS && current == devices[id].device) return 0;
  if (once(&devices[id].retained, retain, id)) return -1;
  if (check(cuCtxPushCurrent_v2(devices[id].primary), "entering the context", "", 0)) return -1;
  *pushed = 1;
  return 0;
}

static int launch_all(int id, CUstream stream, char* const* arrays, char* workspace) {
  for (int i = 0; i < tvmconv_num_launches; ++i) {
    const struct tvmconv_launch* launch = &tvmconv_launches[i];
    void *pointers[TVMCONV_MAX_ARGUMENTS], *parameters[TVMCONV_MAX_ARGUMENTS];
    CUtensorMap maps[TVMCONV_MAX_MAPS], *next = maps;
    for (int j = 0; j < launch->num_arguments; ++j) {
      const struct tvmconv_argument* argument = &launch->arguments[j];
      char* const array = (argument->array < 0 ? workspace : arrays[argument->array]) + argument->offset;
      pointers[j] = array;
      parameters[j] = argument->num_maps > 0 ? (void*)next : &pointers[j];
      for (int k = 0; k < argument->num_maps; ++k) {
        const struct tvmconv_tensor_map* map = &argument->maps[k];
        /* Arithmetic on the CPU alone, for the arrays of this call. */
        CUresult result = cuTensorMapEncodeTiled(next++, map->type, map->rank, array + map->offset, map->extents,
                                                 map->distances, map->box, map->steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                                 map->swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        if (check(result, "describing an array to ", launch->function, devices[id].device) != 0) return -1;
      }
    }
    const uint32_t *grid = launch->grid, *block = launch->block;
    CUresult result = cuLaunchKernel((CUfunction)kernels[i], grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                     launch->shared_bytes, stream, parameters, NULL);
    if (check(result, "launching ", launch->function, devices[id].device) != 0) return -1;
  }
  return 0;
}

/* Check an argument; give its memory, and the device that all arguments are on. */
static int read_array(const TVMFFIAny* value, const struct tvmconv_array* expected, char** memory, int* device) {
  const char* name = expected->name;
  const DLTensor* given = NULL;
  if (value->type_index == kTVMFFIDLTensorPtr)
    given = (const DLTensor*)value->v_ptr;
  else if (value->type_index == kTVMFFITensor)
    given = (const DLTensor*)((const char*)value->v_obj + sizeof(TVMFFIObject));
  if (given == NULL) return fail("TypeError", "%s is not an array", name);
  if (given->device.device_type != kDLCUDA)
    return fail("ValueError", "%s is not in a CUDA device's memory (DLPack device type %d); copy it to the GPU first",
                name, (int)given->device.device_type);
  if (*device >= 0 && given->device.device_id != *device)
    return fail("ValueError", "%s is on GPU %d, and the arrays before it on GPU %d; all must be on one", name,
                (int)given->device.device_id, *device);
  *device = given->device.device_id;
  if (*device < 0 || *device >= MAX_DEVICES) return fail("ValueError", "%s is on GPU %d; there is none", name, *device);
  if (given->dtype.code != expected->type_code || given->dtype.bits != expected->bits || given->dtype.lanes != 1)
    return fail("TypeError", "%s has the DLPack type (%d, %d bits), not (%d, %d bits)", name, given->dtype.code,
                given->dtype.bits, expected->type_code, expected->bits);
  if (given->ndim != expected->ndim)
    return fail("ValueError", "%s has %d axes, not %d", name, (int)given->ndim, (int)expected->ndim);
  int64_t elements = 1;
  for (int axis = 0; axis < expected->ndim; ++axis) elements *= expected->shape[axis];
  int64_t step = 1;
  for (int axis = expected->ndim - 1; axis >= 0; --axis) {
    const int64_t extent = expected->shape[axis];
    if (given->shape[axis] != extent)
      return fail("ValueError", "%s has %lld elements along axis %d, not %lld", name, (long long)given->shape[axis], axis,
                  (long long)extent);
    /* PyTorch's steps may be any if there are no elements. */
    if (given->strides != NULL && extent > 1 && elements != 0 && given->strides[axis] != step)
      return fail("ValueError", "%s is not C-contiguous", name);
    step *= extent;
  }
  *memory = (char*)given->data + given->byte_offset;
  if (elements != 0 && ((uintptr_t)*memory % ALIGNMENT != 0 || given->data == NULL))
    return fail("ValueError", "%s is at address %p, which is not a multiple of %d", name, (void*)*memory, ALIGNMENT);
  return 0;
}

__attribute__((visibility("default"))) int __tvm_ffi_tvmconv_kernel(void* self, const TVMFFIAny* args, int32_t num_args,
                                                                    TVMFFIAny* result) {
  (void)self, (void)result;
  if (num_args != 2 + tvmconv_num_arrays)
    return fail("TypeError", "expected %d arguments: the stream, the workspace and %d arrays", 2 + tvmconv_num_arrays,
                tvmconv_num_arrays);
  if (args[0].type_index != kTVMFFIInt || args[1].type_index != kTVMFFIInt)
    return fail("TypeError", "the stream and the workspace must be addresses, as numbers");
  char* const workspace = (char*)(intptr_t)args[1].v_int64;
  if (tvmconv_workspace_bytes != 0 && (workspace == NULL || (uintptr_t)workspace % WORKSPACE_ALIGNMENT != 0))
    return fail("ValueError", "the workspace is at address %p; this kernel needs %llu bytes, aligned to %d",
                (void*)workspace, (unsigned long long)tvmconv_workspace_bytes, WORKSPACE_ALIGNMENT);
  char* arrays[TVMCONV_MAX_ARRAYS];
  int id = -1, pushed = 0;
  for (int i = 0; i < tvmconv_num_arrays; ++i)
    if (read_array(&args[2 + i], &tvmconv_arrays[i], &arrays[i], &id) != 0) return -1;
  if (tvmconv_num_launches == 0) return 0; /* the output is empty */
  if (enter(id, &pushed) != 0) return -1;
  int status = once(&devices[id].prepared, prepare, id);
  if (status == 0) status = launch_all(id, (CUstream)(intptr_t)args[0].v_int64, arrays, workspace);
  CUcontext popped;
  if (pushed) cuCtxPopCurrent_v2(&popped);
  return status;
}

/* Returns the bytes of device memory that the workspace argument must point to. */
__attribute__((visibility("default"))) int __tvm_ffi_tvmconv_workspace_bytes(void* self, const TVMFFIAny* args,
                                                                             int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)args, (void)num_args;
  result->type_index = kTVMFFIInt;
  result->v_int64 = (int64_t)tvmconv_workspace_bytes;
  return 0;
}
