/* A CUDA kernel's library whose device is the host: a convolution of one channel and one tap.
 *
 * It takes what such libraries take: stream, workspace, data, filter, bias if -DBIAS=1, output. It writes the stream to
 * the workspace if there is one, and remembers both. With -DSTEPS it takes so many steps of 200 microseconds. */
#include <time.h>
#include <tvm/ffi/c_api.h>
#ifndef BIAS
#define BIAS 0
#endif
#ifndef STEPS
#define STEPS 0
#endif
#ifndef WRONG
#define WRONG 0
#endif
static int64_t last_stream, last_workspace, calls;
/* Tensors come as tvm-ffi's own, or as the caller's for the time of the call. */
static DLTensor* tensor(TVMFFIAny value) {
  return value.type_index == kTVMFFIDLTensorPtr ? (DLTensor*)value.v_ptr : (DLTensor*)((char*)value.v_obj + sizeof(TVMFFIObject));
}
static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}
int __tvm_ffi_tvmconv_kernel(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  int64_t end = now() + STEPS * 200000LL;
  (void)self, (void)result;
  if (count != 5 + BIAS || args[0].type_index != kTVMFFIInt || args[1].type_index != kTVMFFIInt) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "these are not the arguments of a CUDA kernel");
    return -1;
  }
  last_stream = args[0].v_int64, last_workspace = args[1].v_int64, ++calls;
  if (last_workspace) *(int64_t*)(intptr_t)last_workspace = last_stream;
  DLTensor *data = tensor(args[2]), *output = tensor(args[4 + BIAS]);
  float factor = *(float*)tensor(args[3])->data, bias = BIAS ? *(float*)tensor(args[4])->data : 0;
  if (output->device.device_id == 7) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError", "the GPU fell off the bus");
    return -1;
  }
  for (int64_t i = 0, n = data->shape[0] * data->shape[1]; i < n; i++)
    ((float*)output->data)[i] = ((float*)data->data)[i] * factor + bias + WRONG;
  while (now() < end) {
  }
  return 0;
}
static int answer(TVMFFIAny* result, int64_t value) {
  result->type_index = kTVMFFIInt, result->v_int64 = value;
  return 0;
}
int __tvm_ffi_last_stream(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) { return (void)self, (void)args, (void)count, answer(result, last_stream); }
int __tvm_ffi_last_workspace(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) { return (void)self, (void)args, (void)count, answer(result, last_workspace); }
int __tvm_ffi_calls(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) { return (void)self, (void)args, (void)count, answer(result, calls); }
int __tvm_ffi_tvmconv_workspace_bytes(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) { return (void)self, (void)args, (void)count, answer(result, 64); }
