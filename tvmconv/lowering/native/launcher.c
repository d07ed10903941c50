/* The run-time services of a compiled kernel, linked into every library of a bundle.
 *
 * TVM's generated code reaches its thread pool and its workspaces through four pointers that only
 * TVM's own runtime fills. Defining them here makes a library need nothing but tvm-ffi and OpenMP.
 * There is no shared state: calls are safe from several threads, and after fork.
 */
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

/* From tvm/runtime/c_backend_api.h. */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} ParallelGroupEnv;
typedef int (*ParallelTask)(int task_id, ParallelGroupEnv* env, void* data);

/* Threads the current call asked for; 0: as many as OpenMP gives (OMP_NUM_THREADS). */
static __thread int requested_threads = 0;

static int parallel_launch(ParallelTask task, void* data, int num_task) {
  int threads = requested_threads > 0 ? requested_threads : omp_get_max_threads();
  if (num_task > 0 && num_task < threads) threads = num_task;
  if (threads == 1) {
    ParallelGroupEnv env = {NULL, 1};
    return task(0, &env, data);
  }
  TVMFFIObjectHandle first_error = NULL;
  int failed = 0;
#pragma omp parallel num_threads(threads) shared(first_error, failed)
  {
    /* OpenMP may give fewer threads than asked for (nested regions, limits): tasks divide the work by
     * num_task, so it must say how many really run. */
    ParallelGroupEnv env = {NULL, omp_get_num_threads()};
    if (task(omp_get_thread_num(), &env, data) != 0) {
      /* A raised error belongs to the thread that raised it: carry one to the caller. */
      TVMFFIObjectHandle error = NULL;
      TVMFFIErrorMoveFromRaised(&error);
#pragma omp critical(tvmconv_error)
      {
        failed = 1;
        if (first_error == NULL) {
          first_error = error;
          error = NULL;
        }
      }
      if (error != NULL) TVMFFIObjectDecRef(error);
    }
  }
  if (first_error != NULL) TVMFFIErrorSetRaised(first_error);
  return failed ? -1 : 0;
}

static int parallel_barrier(int task_id, ParallelGroupEnv* env) {
  (void)task_id;
  (void)env;
#pragma omp barrier
  return 0;
}

/* malloc keeps freed blocks of up to 32 MiB for the next call, so a repeated call touches no fresh page. (Not so with
 * an alignment of a page: then half of a Winograd kernel's time went to page faults.) Larger ones come from the system
 * each time, in huge pages: a call that lays out 52 MB of a filter took 15.6 ms so, and 38 in small ones (one Zen 5).
 *
 * A block is aligned here, with malloc's own pointer before it, and not by posix_memalign: before glibc 2.38, that asks
 * for more than the block that it freed before, between whose neighbours it then no longer fits, so that the heap grows
 * by fresh pages call after call. One that lays out 19 MB of a filter took 11.2 ms in such a process, and takes 4.7. */
#define KEPT_BYTES (31u << 20) /* and room for malloc's own */
#define HUGE_PAGE_BYTES (2u << 20)
#define LINE_BYTES 64u

static void* alloc_workspace(int device_type, int device_id, uint64_t nbytes, int code_hint, int bits_hint) {
  (void)device_type, (void)device_id, (void)code_hint, (void)bits_hint;
  int fresh = nbytes > KEPT_BYTES;
  uintptr_t alignment = fresh ? HUGE_PAGE_BYTES : LINE_BYTES;
  void* allocated = nbytes <= PTRDIFF_MAX - alignment ? malloc(nbytes + alignment) : NULL;
  if (allocated == NULL) {
    TVMFFIErrorSetRaisedFromCStr("MemoryError", "there is no memory for the kernel's workspace");
    return NULL;
  }
  /* The next multiple, which leaves room for the pointer: malloc's are multiples of two pointers. */
  void** block = (void**)(((uintptr_t)allocated / alignment + 1) * alignment);
  block[-1] = allocated;
  if (fresh) madvise(block, nbytes, MADV_HUGEPAGE);
  return block;
}

static int free_workspace(int device_type, int device_id, void* block) {
  (void)device_type, (void)device_id;
  free(((void**)block)[-1]);
  return 0;
}

int (*__TVMBackendParallelLaunch)(ParallelTask, void*, int) = parallel_launch;
int (*__TVMBackendParallelBarrier)(int, ParallelGroupEnv*) = parallel_barrier;
void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = alloc_workspace;
int (*__TVMBackendFreeWorkspace)(int, int, void*) = free_workspace;

/* Tasks that use AMX's tiles ask for them first: Linux lets a process use these registers, in all of its threads, once one
 * has asked (Documentation/arch/x86/xstate.rst). Without that the first tile instruction would be a SIGILL. */
#define ASK_PERMISSION 0x1023
#define TILE_DATA 18

int tvmconv_allow_tiles(void) {
  static atomic_int allowed;
  if (atomic_load_explicit(&allowed, memory_order_relaxed)) return 0;
  if (syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) != 0) {
    TVMFFIErrorSetRaisedFromCStr("RuntimeError",
                                 "Linux does not let this process use AMX's tiles, which this kernel is made of");
    return -1;
  }
  atomic_store_explicit(&allowed, 1, memory_order_relaxed);
  return 0;
}

typedef int (*Function)(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

static int call_with_threads(Function function, void* self, const TVMFFIAny* args, int32_t num_args,
                             TVMFFIAny* result) {
  if (num_args < 1 || args[0].type_index != kTVMFFIInt || args[0].v_int64 < 1 || args[0].v_int64 > INT32_MAX) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "the first argument must be the number of threads, at least 1");
    return -1;
  }
  int outer = requested_threads;
  requested_threads = (int)args[0].v_int64;
  int status = function(self, args + 1, num_args - 1, result);
  requested_threads = outer;
  return status;
}

/* Each function of a library; and the same with the number of threads as first argument, for this one call. */
#define WITH_THREADS(name)                                                                       \
  int name(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);              \
  __attribute__((visibility("default"))) int name##_with_threads(                                \
      void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {                  \
    return call_with_threads(name, self, args, num_args, result);                                \
  }
/* Two are the parts of a kernel that packs its filter, and the tuner's libraries have names of their own: what a
 * library is without, nobody asks it for. */
#pragma weak __tvm_ffi_tvmconv_kernel
#pragma weak __tvm_ffi_tvmconv_pack
#pragma weak __tvm_ffi_tvmconv_packed
WITH_THREADS(__tvm_ffi_tvmconv_kernel)
WITH_THREADS(__tvm_ffi_tvmconv_pack)
WITH_THREADS(__tvm_ffi_tvmconv_packed)

/* GNU OpenMP's worker threads do not exist in a forked child, but its record of them does, and the
 * child's first parallel region would wait for them for ever. Retiring them before the fork leaves a
 * clean record; the parent's next region starts new ones. */
static void before_fork(void) { omp_pause_resource(omp_pause_soft, omp_get_initial_device()); }

__attribute__((constructor)) static void on_load(void) { pthread_atfork(before_fork, NULL, NULL); }
