/* A libcuda.so.1 without a GPU: device memory is the host's, work is done when it is asked for, and code does nothing.
 *
 * Compiled with -DVERSION=13000 -DINIT=0 -DARCHITECTURES=90,80. Streams, events and graphs are numbers. What is done to
 * streams and events is noted for fake_log. What a launcher asks for goes, a line a call, to the file FAKE_CUDA_LOG;
 * FAKE_CUDA_PARAMETERS is how many pointers a launch passes, which a driver knows from the code.
 * FAKE_CUDA_FAIL=cuLaunchKernel:1 makes that function fail with that error. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const int architectures[] = {ARCHITECTURES};
#define DEVICES ((int)(sizeof architectures / sizeof *architectures))

static __thread int stack[16], depth = 0; /* the contexts of this thread: each is its device's number plus 1 */
static char text[1 << 16];
static uintptr_t handles = 1000;
static int64_t recorded[1 << 16];
static int finished = 1;
static pid_t initialized; /* a forked child cannot use what its parent initialized */

const char* fake_log(void) { return text; }
void fake_clear(void) { text[0] = 0; }
void fake_set_finished(int value) { finished = value; } /* what events say when they are asked */
static void note(const char* what, uintptr_t stream) {
  size_t used = strlen(text);
  snprintf(text + used, sizeof text - used, "%s %ld\n", what, (long)stream);
}
static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

#define LOG(...)                                                  \
  do {                                                            \
    const char* path = getenv("FAKE_CUDA_LOG");                   \
    FILE* file = path ? fopen(path, "a") : NULL;                  \
    if (file) fprintf(file, __VA_ARGS__), fclose(file);           \
  } while (0)

static int failure(const char* function) {
  if (initialized && initialized != getpid()) return 3; /* CUDA_ERROR_NOT_INITIALIZED */
  const char* wanted = getenv("FAKE_CUDA_FAIL");
  const size_t length = strlen(function);
  return wanted && !strncmp(wanted, function, length) && wanted[length] == ':' ? atoi(wanted + length + 1) : 0;
}
#define MAY_FAIL()                       \
  do {                                   \
    const int error = failure(__func__); \
    if (error) return error;             \
  } while (0)

int cuDriverGetVersion(int* version) { return *version = VERSION, 0; }
int cuInit(unsigned flags) {
  LOG("init %u\n", flags);
  MAY_FAIL();
  return initialized = getpid(), INIT;
}
int cuGetErrorName(int code, const char** name) { return *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR", 0; }
int cuGetErrorString(int code, const char** words) {
  *words = code == 100   ? "no CUDA-capable device is detected"
           : code == 209 ? "no kernel image is available for execution on the device"
                         : "an error of the fake driver";
  return 0;
}
int cuDeviceGetCount(int* count) { return *count = DEVICES, 0; }
int cuDeviceGet(int* device, int index) { return *device = index, index < DEVICES ? 0 : 101; }
int cuDeviceGetName(char* name, int size, int device) { return snprintf(name, size, "Fake %d", device), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? architectures[device] / 10 : attribute == 76 ? architectures[device] % 10 : 4096;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  LOG("retain %d\n", device);
  MAY_FAIL();
  return *context = (void*)(intptr_t)(device + 1), 0;
}
int cuCtxPushCurrent_v2(void* context) {
  stack[depth++] = (int)(intptr_t)context;
  LOG("push %d\n", stack[depth - 1] - 1);
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = (void*)(intptr_t)stack[--depth];
  LOG("pop %d\n", stack[depth] - 1);
  return 0;
}
int cuCtxGetDevice(int* device) {
  MAY_FAIL();
  return depth ? (*device = stack[depth - 1] - 1, 0) : 201;
}

int cuMemAlloc_v2(uint64_t* address, size_t bytes) { return *address = (uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256), 0; }
int cuMemFree_v2(uint64_t address) { return free((void*)(uintptr_t)address), 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) { return memcpy((void*)(uintptr_t)to, from, bytes), 0; }
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t bytes) { return memcpy(to, (void*)(uintptr_t)from, bytes), 0; }
int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes) { return memset((void*)(uintptr_t)to, value, bytes), 0; }

int cuStreamCreate(void** stream, unsigned flags) { return (void)flags, *stream = (void*)++handles, 0; }
int cuStreamSynchronize(void* stream) { return note("synchronize", (uintptr_t)stream), 0; }
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) { return (void)event, (void)flags, note("wait", (uintptr_t)stream), 0; }
int cuStreamBeginCapture_v2(void* stream, int mode) { return (void)mode, note("capture", (uintptr_t)stream), 0; }
int cuStreamEndCapture(void* stream, void** graph) { return (void)stream, *graph = (void*)++handles, 0; }
int cuGraphInstantiateWithFlags(void** program, void* graph, unsigned long long flags) { return (void)graph, (void)flags, *program = (void*)++handles, 0; }
int cuGraphDestroy(void* graph) { return (void)graph, 0; }
int cuGraphExecDestroy(void* program) { return (void)program, 0; }
int cuGraphLaunch(void* program, void* stream) { return (void)program, note("graph", (uintptr_t)stream), 0; }

int cuEventCreate(void** event, unsigned flags) { return (void)flags, *event = (void*)++handles, 0; }
int cuEventDestroy_v2(void* event) { return note("destroy", (uintptr_t)event), 0; }
int cuEventRecord(void* event, void* stream) { return recorded[(uintptr_t)event & 0xffff] = now(), note("record", (uintptr_t)stream), 0; }
int cuEventQuery(void* event) { return (void)event, finished ? 0 : 600; }
int cuEventSynchronize(void* event) { return (void)event, 0; }
int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  *milliseconds = (recorded[(uintptr_t)end & 0xffff] - recorded[(uintptr_t)start & 0xffff]) * 1e-6f;
  return 0;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  static __thread int current;
  const int before = current;
  current = *mode;
  *mode = before;
  LOG("capture mode %d\n", current);
  return 0;
}
int cuLibraryLoadData(void** library, const void* code, void* a, void** b, unsigned c, void* d, void** e, unsigned f) {
  (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
  LOG("load %08x\n", *(const unsigned*)code);
  MAY_FAIL();
  return *library = (void*)code, 0;
}
int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  (void)library;
  MAY_FAIL();
  return *kernel = strdup(name), 0;
}
int cuKernelGetFunction(void** function, void* kernel) {
  MAY_FAIL();
  return *function = kernel, 0;
}
int cuKernelSetAttribute(int attribute, int value, void* kernel, int device) {
  LOG("attribute %d of %s is %d on %d\n", attribute, (char*)kernel, value, device);
  MAY_FAIL();
  return 0;
}
int cuTensorMapEncodeTiled(uint64_t* map, int type, uint32_t rank, void* address, const uint64_t* extents,
                           const uint64_t* distances, const uint32_t* box, const uint32_t* steps, int interleave,
                           int swizzle, int promotion, int fill) {
  char axes[512] = "";
  for (uint32_t i = 0; i < rank; ++i)
    sprintf(axes + strlen(axes), " %lu/%lu/%u/%u", (unsigned long)extents[i], i ? (unsigned long)distances[i - 1] : 0, box[i], steps[i]);
  LOG("map %p type %d modes %d %d %d %d axes%s\n", address, type, interleave, swizzle, promotion, fill, axes);
  MAY_FAIL();
  memset(map, 0xAB, 128);
  return map[0] = (uintptr_t)address, (uintptr_t)map % 64 ? 1 : 0;
}
int cuLaunchKernel(void* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
  (void)extra;
  if (!depth) return 201;
  const char* count = getenv("FAKE_CUDA_PARAMETERS");
  char pointers[256] = "";
  for (int i = 0; count && i < atoi(count); ++i) sprintf(pointers + strlen(pointers), " %p", *(void**)parameters[i]);
  LOG("launch %s on %d grid %u %u %u block %u %u %u shared %u stream %p with%s\n", (char*)kernel, stack[depth - 1] - 1, gx,
      gy, gz, bx, by, bz, shared, stream, pointers);
  MAY_FAIL();
  return note("launch", (uintptr_t)stream), 0;
}
