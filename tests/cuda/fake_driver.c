/* A libcuda.so.1 that runs nothing and writes down what it is asked to do, a line a call, to the file FAKE_CUDA_LOG.
 *
 * FAKE_CUDA_FAIL=cuLaunchKernel:1 makes that function fail with that error. FAKE_CUDA_PARAMETERS is how many pointers
 * a launch passes, which a driver knows from the code. There are two GPUs, of sm_75.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_DEPTH 8
enum { SUCCESS = 0, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, DEVICES = 2 };
static __thread int stack[MAX_DEPTH], depth;
static char primaries[DEVICES];
static pid_t initialized; /* a forked child cannot use what its parent initialized */

#define LOG(...)                                    \
  do {                                              \
    FILE* file = fopen(getenv("FAKE_CUDA_LOG"), "a"); \
    fprintf(file, __VA_ARGS__);                     \
    fclose(file);                                   \
  } while (0)

static int failure(const char* function) {
  if (initialized && initialized != getpid()) return NOT_INITIALIZED;
  const char* wanted = getenv("FAKE_CUDA_FAIL");
  const size_t length = strlen(function);
  return wanted && !strncmp(wanted, function, length) && wanted[length] == ':' ? atoi(wanted + length + 1) : SUCCESS;
}
#define MAY_FAIL()                        \
  do {                                    \
    const int error = failure(__func__);  \
    if (error != SUCCESS) return error;   \
  } while (0)

int cuInit(unsigned flags) {
  LOG("init %u\n", flags);
  MAY_FAIL();
  initialized = getpid();
  return SUCCESS;
}

int cuGetErrorString(int error, const char** text) {
  *text = error == 100   ? "no CUDA-capable device is detected"
          : error == 209 ? "no kernel image is available for execution on the device"
                         : "an error of the fake driver";
  return SUCCESS;
}

int cuDeviceGet(int* device, int ordinal) {
  if (ordinal >= DEVICES) return INVALID_DEVICE;
  *device = ordinal;
  return SUCCESS;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? 7 : 5;
  return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  LOG("retain %d\n", device);
  MAY_FAIL();
  *context = &primaries[device];
  return SUCCESS;
}

int cuCtxGetDevice(int* device) {
  MAY_FAIL();
  if (depth == 0) return INVALID_CONTEXT;
  *device = stack[depth - 1];
  return SUCCESS;
}

int cuCtxPushCurrent_v2(void* context) {
  LOG("push %d\n", (int)((char*)context - primaries));
  stack[depth++] = (int)((char*)context - primaries);
  return SUCCESS;
}

int cuCtxPopCurrent_v2(void** context) {
  *context = &primaries[stack[--depth]];
  LOG("pop %d\n", stack[depth]);
  return SUCCESS;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  static __thread int current;
  const int before = current;
  current = *mode;
  *mode = before;
  LOG("capture mode %d\n", current);
  return SUCCESS;
}

int cuLibraryLoadData(void** library, const void* code, void* a, void** b, unsigned c, void* d, void** e, unsigned f) {
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  unsigned magic;
  memcpy(&magic, code, sizeof magic);
  LOG("load %08x\n", magic);
  MAY_FAIL();
  *library = (void*)code;
  return SUCCESS;
}

int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  (void)library;
  MAY_FAIL();
  *kernel = strdup(name);
  return SUCCESS;
}

int cuKernelGetFunction(void** function, void* kernel) {
  MAY_FAIL();
  *function = kernel;
  return SUCCESS;
}

int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  LOG("attribute %d of %s is %d on %d\n", attribute, (char*)kernel, value, device);
  MAY_FAIL();
  return SUCCESS;
}

int cuLaunchKernel(void* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
  (void)extra;
  if (depth == 0) return INVALID_CONTEXT;
  char pointers[256] = "";
  for (int i = 0; i < atoi(getenv("FAKE_CUDA_PARAMETERS")); ++i)
    sprintf(pointers + strlen(pointers), " %p", *(void**)parameters[i]);
  LOG("launch %s on %d grid %u %u %u block %u %u %u shared %u stream %p with%s\n", (char*)kernel, stack[depth - 1], gx, gy,
      gz, bx, by, bz, shared, stream, pointers);
  MAY_FAIL();
  return SUCCESS;
}
