/* The run-time services of a compiled kernel, linked into every library of a bundle.
 *
 * TVM's generated code reaches its thread pool and its workspaces through four pointers that only
 * TVM's own runtime fills. Defining them here makes a library need nothing but tvm-ffi. (A fifth is not defined: the
 * barrier within parallel loops, which no kernel here has.) Calls are safe from several threads, and after fork.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <tvm/ffi/c_api.h>

#include "parallel.h"
#include "system.h"

/* Declarations of tvm/runtime/c_backend_api.h. */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} ParallelGroupEnv;
typedef int (*ParallelTask)(int task_id, ParallelGroupEnv* env, void* data);

/* Threads of the current call, 0: the default number; and whether they are OpenMP's. */
static __thread int requested_threads = 0;
static __thread int by_openmp = 0;

typedef struct {
  ParallelTask task;
  void* data;
  int tasks;
  _Atomic(TVMFFIObjectHandle) error;
} Launch;

static int run_task(void* context, int64_t index) {
  Launch* launch = context;
  ParallelGroupEnv env = {NULL, launch->tasks};
  if (launch->task(index, &env, launch->data) == 0) return 0;
  /* A raised error belongs to the thread that raised it: hand the first one to the caller. */
  TVMFFIObjectHandle error = NULL, none = NULL;
  TVMFFIErrorMoveFromRaised(&error);
  if (!atomic_compare_exchange_strong(&launch->error, &none, error) && error != NULL) TVMFFIObjectDecRef(error);
  return -1;
}

static int current_threads(void) { return requested_threads > 0 ? requested_threads : tvmconv_threads(); }

/* The number of tasks of this thread's next loop, and its size, in tasks that are not cut (`cut_tasks`); 0: unknown. */
static __thread int next_tasks = 0, next_enough = 0;
/* Most tasks of a loop for each of its threads, which take over tasks of slower ones: of more, several become one. */
#define MOST_TASKS 16
/* Number of threads for which plans have tasks; and the time of a loop of the size of one such task, some 5 to 10 us, in units of the time that
 * a further thread costs to wake and to wait for. */
#define FEW_THREADS 8
#define THREADS_OF_SIZE 20

/* Returns how many of `threads` a loop of so many equal tasks asks for: the number that makes it shortest, and no more than have a task in
 * the last round. */
static int threads_for(int64_t size, int tasks, int threads) {
  if (tasks < threads) threads = tasks;
  if (threads <= FEW_THREADS) return threads;
  const int64_t work = THREADS_OF_SIZE * size;
  int paying = FEW_THREADS;
  while (paying < threads && (int64_t)paying * paying < work) paying++; /* in whole rounds, or in parts of one */
  int64_t rounds = tasks / paying, most = (tasks + threads - 1) / threads;
  if (rounds < most) rounds = most;
  const int64_t more = (tasks + rounds - 1) / rounds, fewer = (tasks + rounds) / (rounds + 1);
  const int64_t best = rounds * work / tasks + more <= (rounds + 1) * work / tasks + fewer ? more : fewer;
  return best > FEW_THREADS ? (int)best : FEW_THREADS;
}

/* Returns the size of a loop from which so many threads pay. */
static int64_t size_of(int threads) { return (int64_t)threads * threads / THREADS_OF_SIZE; }

/* A loop, in its caller's frame. */
typedef struct {
  Body body;
  void* data;
  int64_t tasks, size; /* as of `threads_for` */
  int done, failed;
} Loop;

/* Runs an iteration by one thread. The pool does so by itself; a loop within an iteration of an OpenMP thread would start the pool's threads. */
static int run_alone(void* context, int64_t index) {
  const Loop* loop = context;
  const int outer = requested_threads;
  requested_threads = 1;
  const int status = loop->body(loop->data, index);
  requested_threads = outer;
  return status;
}

static int share(int threads, int64_t count, Body body, void* data) {
  if (!by_openmp) return tvmconv_parallel_for(threads, count, body, data);
  Loop loop = {.body = body, .data = data};
  return tvmconv_parallel_for_openmp(threads, count, run_alone, &loop);
}

/* Steps of a network that may run at once. The next step begins while the loop of the one before waits; both loops then become one, so that
 * threads come once, and those without a task of one step have another's. */
#define MOST_LOOPS 8
typedef struct {
  int (*run)(void* steps);
  void* steps;
  int left; /* steps that have not begun */
  int status;
  int count;
  Loop* waiting[MOST_LOOPS];
} Beside;
static __thread Beside* beside = NULL;

static void begin_step(Beside* own) {
  --own->left;
  if (own->run(own->steps) != 0) own->status = -1;
}

static int run_waiting_task(void* data, int64_t index) {
  Loop* const* loop = ((Beside*)data)->waiting;
  for (; index >= (*loop)->tasks; ++loop) index -= (*loop)->tasks;
  return (*loop)->body((*loop)->data, index);
}

/* Runs the waiting loops, the one of the longest tasks first. */
static void run_waiting(Beside* own) {
  int64_t size = 0, tasks = 0;
  for (int each = 0; each < own->count; ++each) {
    Loop* loop = own->waiting[each];
    int at = each;
    for (; at > 0 && own->waiting[at - 1]->size * loop->tasks < loop->size * own->waiting[at - 1]->tasks; --at)
      own->waiting[at] = own->waiting[at - 1];
    own->waiting[at] = loop;
    size += loop->size;
    tasks += loop->tasks;
  }
  beside = NULL; /* within a task no loop waits */
  const int failed = share(threads_for(size, (int)tasks, current_threads()), tasks, run_waiting_task, own);
  beside = own;
  for (int each = 0; each < own->count; ++each) own->waiting[each]->done = 1, own->waiting[each]->failed = failed;
  own->count = 0;
}

/* Runs a loop that asks for so many threads. It waits for those of other steps if more threads pay than plans have tasks for: smaller loops
 * precede a step's largest. */
static int run_loop(Loop* loop, int asked) {
  Beside* own = beside;
  if (own == NULL || current_threads() <= FEW_THREADS || THREADS_OF_SIZE * loop->size <= FEW_THREADS * FEW_THREADS)
    return share(asked, loop->tasks, loop->body, loop->data);
  own->waiting[own->count++] = loop;
  while (own->status == 0 && !loop->done)
    if (own->left > 0 && own->count < MOST_LOOPS)
      begin_step(own);
    else
      run_waiting(own);
  return own->status != 0 ? own->status : loop->failed;
}

int tvmconv_run_beside(int count, int (*run)(void* steps), void* steps) {
  Beside own = {run, steps, count, 0, 0, {NULL}};
  beside = &own;
  while (own.status == 0 && own.left > 0) begin_step(&own);
  beside = NULL;
  return own.status;
}

static int parallel_launch(ParallelTask task, void* data, int num_task) {
  int threads = current_threads(), tasks = next_tasks;
  const int64_t size = tasks > 0 ? next_enough : size_of(threads);
  next_tasks = 0;
  if (num_task > 0) tasks = num_task;
  if (tasks > 0) threads = threads_for(size, tasks, threads);
  if (threads == 1) {
    ParallelGroupEnv env = {NULL, 1};
    return task(0, &env, data);
  }
  if (tasks <= 0) tasks = threads;
  if (tasks > MOST_TASKS * threads) {
    int together = tasks / (MOST_TASKS * threads) + 1;
    tasks = (tasks + together - 1) / together;
  }
  Launch launch = {task, data, tasks, NULL};
  Loop loop = {run_task, &launch, tasks, size, 0, 0};
  int failed = run_loop(&loop, threads);
  TVMFFIObjectHandle error = atomic_load(&launch.error);
  if (error != NULL) TVMFFIErrorSetRaised(error);
  return failed ? -1 : 0;
}

/* Returns into how many pieces each of a loop's tasks is cut along an axis of so many: the number that makes the busiest thread's work least, or
 * fewer where that gains less than a sixteenth; one for the threads that plans have tasks for. Each piece repeats work of `again` sixteenths of
 * one; `enough` tasks are not cut. `tvmconv/lowering/cpu/rewrites/tasks/cuts.py` does the same. */
static int cut_tasks(int tasks, int pieces, int again, int enough) {
  const int64_t threads = current_threads();
  int best = 1;
  next_tasks = tasks;
  next_enough = enough;
  if (threads <= FEW_THREADS || tasks <= 0) return 1;
  int64_t least = (tasks + threads - 1) / threads * (16 * pieces + again);
  for (int64_t cuts = 2; cuts <= pieces && tasks * cuts <= enough; cuts++) {
    int64_t busiest = (tasks * cuts + threads - 1) / threads * (16 * ((pieces + cuts - 1) / cuts) + again);
    if (16 * busiest <= 15 * least) best = (int)cuts, least = busiest;
  }
  next_tasks = tasks * best;
  return best;
}

/* Calls `body` with every index below `count`, by the threads of the current call. */
int tvmconv_share(int64_t count, Body body, void* data) {
  const int threads = current_threads();
  Loop loop = {body, data, count, size_of(threads), 0, 0};
  return run_loop(&loop, threads);
}

/* malloc keeps freed blocks of up to 32 MiB for the next call, so a repeated call touches no fresh page. (Not blocks
 * aligned to a page: with these, half of a Winograd kernel's time went to page faults.) Larger ones come from the system
 * each time, in huge pages: a call that lays out 52 MB of a filter took 15.6 ms so, and 38 in small ones (one Zen 5).
 *
 * A block is aligned here, with malloc's own pointer before it, and not by posix_memalign: before glibc 2.38, that asks
 * for more than the block that it freed before, between whose neighbours it then no longer fits, so that the heap grows
 * by fresh pages call after call. One that lays out 19 MB of a filter took 11.2 ms in such a process, and takes 4.7. */
#define KEPT_BYTES (31u << 20) /* and room for malloc's own */
#define LINE_BYTES 64u

/* Memory of this thread's workspaces while they fit (of networks: their arena), from a cache line on; its free part
 * begins at `lent`. One is freed before those that were taken before it. */
static __thread unsigned char *lent_from = NULL, *lent = NULL, *lent_to = NULL;

void tvmconv_lend(unsigned char* place, uint64_t bytes) {
  lent_from = lent = place;
  lent_to = place + bytes;
}

static void* alloc_workspace(int device_type, int device_id, uint64_t nbytes, int code_hint, int bits_hint) {
  (void)device_type, (void)device_id, (void)code_hint, (void)bits_hint;
  if (nbytes < (uint64_t)(lent_to - lent)) {
    unsigned char* block = lent;
    lent += (nbytes / LINE_BYTES + 1) * LINE_BYTES; /* fits: the free part is whole lines */
    return block;
  }
  int fresh = nbytes > KEPT_BYTES;
  uintptr_t alignment = fresh ? HUGE_PAGE_BYTES : LINE_BYTES;
  void* allocated = nbytes <= PTRDIFF_MAX - alignment ? malloc(nbytes + alignment) : NULL;
  if (allocated == NULL) {
    TVMFFIErrorSetRaisedFromCStr("MemoryError", "there is no memory for the kernel's workspace");
    return NULL;
  }
  /* The next multiple leaves room for the pointer: malloc's addresses are multiples of two pointers. */
  void** block = (void**)(((uintptr_t)allocated / alignment + 1) * alignment);
  block[-1] = allocated;
  if (fresh) advise_huge(block, nbytes);
  return block;
}

static int free_workspace(int device_type, int device_id, void* block) {
  (void)device_type, (void)device_id;
  if ((unsigned char*)block >= lent_from && (unsigned char*)block < lent_to)
    lent = block;
  else
    free(((void**)block)[-1]);
  return 0;
}

int (*__TVMBackendParallelLaunch)(ParallelTask, void*, int) = parallel_launch;
int (*__TVMBackendCutTasks)(int, int, int, int) = cut_tasks;
void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = alloc_workspace;
int (*__TVMBackendFreeWorkspace)(int, int, void*) = free_workspace;

static int read_threads(const TVMFFIAny* args, int32_t num_args, int least, int* threads) {
  if (num_args < 1 || args[0].type_index != kTVMFFIInt || args[0].v_int64 < least || args[0].v_int64 > INT32_MAX) {
    TVMFFIErrorSetRaisedFromCStr("ValueError", "the first argument must be the number of threads, at least 1");
    return -1;
  }
  *threads = (int)args[0].v_int64;
  return 0;
}

/* The threads of this thread's later calls of functions of this library that take no number; 0: the default. */
__attribute__((visibility("default"))) int __tvm_ffi_tvmconv_set_threads(void* self, const TVMFFIAny* args, int32_t num_args,
                                                                         TVMFFIAny* result) {
  return read_threads(args, num_args, 0, &requested_threads);
}

typedef int (*Function)(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

static int call_with_threads(Function function, int openmp, void* self, const TVMFFIAny* args, int32_t num_args,
                             TVMFFIAny* result) {
  int outer = requested_threads, outer_openmp = by_openmp;
  if (read_threads(args, num_args, 1, &requested_threads) != 0) return -1;
  by_openmp = openmp;
  int status = function(self, args + 1, num_args - 1, result);
  requested_threads = outer;
  by_openmp = outer_openmp;
  return status;
}

/* Variants of each function of a library with the number of threads of the call as first argument: threads of the pool, or OpenMP's
 * where this process has it. */
#define WITH(name, ending, openmp, function)                                                     \
  __attribute__((visibility("default"))) int name##ending(                                       \
      void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {                  \
    return call_with_threads(function, openmp, self, args, num_args, result);                    \
  }
#define DECLARE(name) int name(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);
#define WITH_THREADS(name)                                                                       \
  DECLARE(name)                                                                                  \
  WITH(name, _with_threads, 0, name)                                                             \
  WITH(name, _with_openmp, 1, name)
/* A kernel that packs its filter has two functions, and the tuner's libraries have names of their own: no caller asks for the
 * functions that a library lacks. */
#pragma weak __tvm_ffi_tvmconv_kernel
#pragma weak __tvm_ffi_tvmconv_pack
#pragma weak __tvm_ffi_tvmconv_packed
#pragma weak __tvm_ffi_tvmconv_network
#ifdef _WIN32 /* GCC forgets this of what only has its address taken */
__asm__(".weak __tvm_ffi_tvmconv_kernel\n.weak __tvm_ffi_tvmconv_pack\n.weak __tvm_ffi_tvmconv_packed");
#endif
WITH_THREADS(__tvm_ffi_tvmconv_kernel)
WITH_THREADS(__tvm_ffi_tvmconv_pack)
WITH_THREADS(__tvm_ffi_tvmconv_packed)
DECLARE(__tvm_ffi_tvmconv_network)

typedef struct {
  void* self;
  const TVMFFIAny* args;
  int32_t num_args;
  TVMFFIAny* result;
} Call;

static int call_network(void* data) {
  const Call* call = data;
  return __tvm_ffi_tvmconv_network(call->self, call->args, call->num_args, call->result);
}

/* A network has many short loops: OpenMP's threads come once for all of them. */
static int network_by_team(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  Call call = {self, args, num_args, result};
  return tvmconv_by_team(current_threads(), call_network, &call);
}
WITH(__tvm_ffi_tvmconv_network, _with_threads, 0, __tvm_ffi_tvmconv_network)
WITH(__tvm_ffi_tvmconv_network, _with_openmp, 1, network_by_team)
