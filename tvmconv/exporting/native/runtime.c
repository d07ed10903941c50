/* The run-time services of an archive's kernels: variants, arguments, threads, workspaces, errors.
 *
 * The state of a call is on its caller's stack. TVM's generated code passes no context to the functions that launch tasks and
 * allocate memory, so a thread-local pointer leads from each thread to the call that it works for.
 */
#include "tvmconv-runtime.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Alignment of blocks; and the size of the header before each in a workspace. */
#define LINE 64u

/* A call. `workspace` is NULL, or has `size.shared` bytes and then `size.task` bytes for each of `threads`. */
struct call {
  tvmconv_name_parallel_for parallel_for;
  void *context;
  int threads;
  char *workspace;
  struct workspace size;
  atomic_int status;
};

/* Header of a block from the allocator, one LINE before it: a doubly linked list. */
struct header {
  struct header *before, *after;
};

/* Work of a thread: a call or one of its tasks, with the rest of its part of the workspace, or its blocks from the allocator. */
struct frame {
  struct call *call;
  char *next, *end;
  int is_task;
  struct header *blocks;
};
static __thread struct frame *current;

static void *default_allocate(void *context, size_t bytes, size_t alignment);
static void default_release(void *context, void *block);

static struct {
  tvmconv_name_parallel_for parallel_for;
  void *context;
  int threads;
  void *(*allocate)(void *context, size_t bytes, size_t alignment);
  void (*release)(void *context, void *block);
  void *allocator_context;
} hooks = {NULL, NULL, 0, default_allocate, default_release, NULL};

int tvmconv_name_set_parallel_for(tvmconv_name_parallel_for parallel_for, void *context, int threads) {
  if (threads < 1) return tvmconv_name_ERROR_ARGUMENT;
  hooks.parallel_for = parallel_for;
  hooks.context = context;
  hooks.threads = threads;
  return tvmconv_name_OK;
}

int tvmconv_name_set_allocator(void *(*allocate)(void *context, size_t bytes, size_t alignment),
                               void (*release)(void *context, void *block), void *context) {
  if ((allocate == NULL) != (release == NULL)) return tvmconv_name_ERROR_ARGUMENT;
  hooks.allocate = allocate != NULL ? allocate : default_allocate;
  hooks.release = release != NULL ? release : default_release;
  hooks.allocator_context = context;
  return tvmconv_name_OK;
}

const char *tvmconv_name_error_string(int status) {
  switch (status) {
    case tvmconv_name_OK: return "no error";
    case tvmconv_name_ERROR_CPU: return "this CPU lacks features that the kernel was built for";
    case tvmconv_name_ERROR_ARGUMENT: return "an argument is NULL, not aligned to its elements, or out of range";
    case tvmconv_name_ERROR_MEMORY: return "the allocator has no memory for the workspace";
    case tvmconv_name_ERROR_WORKSPACE: return "the workspace is smaller than workspace_bytes says for this number of threads";
    case tvmconv_name_ERROR_THREADS: return "the hook for threads failed, or did not run every task once";
    case tvmconv_name_ERROR_TILES: return "the system does not let this process use AMX's tiles";
    case tvmconv_name_ERROR_KERNEL: return "the kernel refused its arguments, which is an error in tvmconv";
    default: return "not an error code of this library";
  }
}

/* Result of the detection: 0 before it, else CHOSEN and a bit for each target that this CPU runs. */
#define CHOSEN 0x80000000u

static uint32_t runs(void) {
  static atomic_uint choice;
  uint32_t chosen = atomic_load_explicit(&choice, memory_order_relaxed);
  if (chosen == 0) { /* concurrent threads detect the same */
    chosen = CHOSEN | tvmconv_name_rt_detect();
    atomic_store_explicit(&choice, chosen, memory_order_relaxed);
  }
  return chosen & ~CHOSEN;
}

int tvmconv_name_supported(void) {
  uint32_t targets = runs();
  for (int i = 0; i < tvmconv_name_rt_covers_count; ++i)
    if ((tvmconv_name_rt_covers[i] & targets) == 0) return 0;
  return 1;
}

int tvmconv_name_rt_runs(int target) { return (int)(runs() >> target & 1); }

const struct variant *tvmconv_name_rt_variant(const struct kernel *kernel) {
  uint32_t targets = runs();
  for (int i = 0; i < kernel->variants; ++i)
    if (targets >> kernel->variant[i].target & 1) return &kernel->variant[i];
  return NULL;
}

/* Keeps the first failure of a call, which it returns. */
static void fail(struct call *call, int status) {
  int none = tvmconv_name_OK;
  atomic_compare_exchange_strong(&call->status, &none, status);
}

/* Called by a kernel that refuses its arguments, although this archive has checked them; the text is dropped. */
void tvmconv_name_rt_raise(const char *kind, const char **parts, int32_t count) {
  (void)kind, (void)parts, (void)count;
  fail(current->call, tvmconv_name_ERROR_KERNEL);
}

/* Linux lets a process use AMX's registers once it has asked (Documentation/arch/x86/xstate.rst). */
int tvmconv_name_rt_allow_tiles(void) {
  static atomic_int allowed;
  if (atomic_load_explicit(&allowed, memory_order_relaxed)) return 0;
#ifdef SYS_arch_prctl
  if (syscall(SYS_arch_prctl, 0x1023, 18) == 0) {
    atomic_store_explicit(&allowed, 1, memory_order_relaxed);
    return 0;
  }
#endif
  if (current != NULL) fail(current->call, tvmconv_name_ERROR_TILES);
  return -1;
}

/* malloc keeps freed blocks of up to 32 MiB for the next call; larger ones come from the system each time, so they are aligned to
 * huge pages, as in launcher.c, which has the measurements. */
#define KEPT_BYTES (31u << 20)
#define HUGE_PAGE_BYTES (2u << 20)

static void *default_allocate(void *context, size_t bytes, size_t alignment) {
  (void)context;
  int fresh = bytes > KEPT_BYTES;
  if (fresh) alignment = HUGE_PAGE_BYTES;
  void *allocated = bytes <= PTRDIFF_MAX - alignment ? malloc(bytes + alignment) : NULL;
  if (allocated == NULL) return NULL;
  void **block = (void **)(((uintptr_t)allocated / alignment + 1) * alignment);
  block[-1] = allocated;
#ifdef MADV_HUGEPAGE
  if (fresh) madvise(block, bytes, MADV_HUGEPAGE);
#endif
  return block;
}

static void default_release(void *context, void *block) {
  (void)context;
  free(((void **)block)[-1]);
}

void *tvmconv_name_rt_allocate(int device_type, int device, uint64_t bytes, int code, int bits) {
  (void)device_type, (void)device, (void)code, (void)bits;
  struct frame *frame = current;
  size_t size = (bytes + LINE - 1) / LINE * LINE + LINE;
  char *start;
  if (frame->call->workspace == NULL) {
    start = hooks.allocate(hooks.allocator_context, size, LINE);
    if (start == NULL) {
      fail(frame->call, tvmconv_name_ERROR_MEMORY);
      return NULL;
    }
    struct header *header = (struct header *)start;
    *header = (struct header){NULL, frame->blocks};
    if (frame->blocks != NULL) frame->blocks->before = header;
    frame->blocks = header;
    return start + LINE;
  }
  if (size > (size_t)(frame->end - frame->next)) {
    fail(frame->call, tvmconv_name_ERROR_WORKSPACE);
    return NULL;
  }
  start = frame->next;
  frame->next += size;
  memcpy(start, &size, sizeof size);
  return start + LINE;
}

int tvmconv_name_rt_release(int device_type, int device, void *block) {
  (void)device_type, (void)device;
  struct frame *frame = current;
  char *start = (char *)block - LINE;
  if (frame->call->workspace == NULL) {
    struct header *header = (struct header *)start;
    if (header->before != NULL) header->before->after = header->after;
    if (header->after != NULL) header->after->before = header->before;
    if (frame->blocks == header) frame->blocks = header->after;
    hooks.release(hooks.allocator_context, start);
    return 0;
  }
  size_t size;
  memcpy(&size, start, sizeof size);
  if (start + size == frame->next) frame->next = start; /* the last block; others are given back with it, or with the call */
  return 0;
}

/* Frees the blocks that a failed kernel has left. */
static void leave(struct frame *frame, struct frame *outer) {
  for (struct header *left = frame->blocks; left != NULL;) {
    struct header *after = left->after;
    hooks.release(hooks.allocator_context, left);
    left = after;
  }
  current = outer;
}

/* A parallel loop: `count` tasks, each a share of it. */
struct launch {
  struct call *call;
  int (*task)(int, void *, void *);
  void *data;
  int count;
  atomic_int done;
};

static void run_task(void *argument, int index) {
  struct launch *launch = argument;
  struct call *call = launch->call;
  struct {
    void *sync_handle;
    int32_t tasks;
  } environment = {NULL, launch->count};
  struct frame frame = {call, NULL, NULL, 1, NULL}, *outer = current;
  if (call->workspace != NULL) {
    frame.next = call->workspace + call->size.shared + (size_t)index * call->size.task;
    frame.end = frame.next + call->size.task;
  }
  current = &frame;
  if (launch->task(index, &environment, launch->data) != 0) fail(call, tvmconv_name_ERROR_KERNEL);
  leave(&frame, outer);
  atomic_fetch_add_explicit(&launch->done, 1, memory_order_relaxed);
}

int tvmconv_name_rt_launch(int (*task)(int, void *, void *), void *data, int count) {
  struct call *call = current->call;
  if (count <= 0 || count > call->threads) count = call->threads;
  struct launch launch = {call, task, data, count, 0};
  if (current->is_task) { /* tvmconv generates no nested loops; one would run whole in this task */
    struct {
      void *sync_handle;
      int32_t tasks;
    } environment = {NULL, 1};
    return task(0, &environment, data);
  }
  if (count == 1) {
    run_task(&launch, 0);
  } else if (call->parallel_for(call->context, count, run_task, &launch) != 0 ||
             atomic_load_explicit(&launch.done, memory_order_relaxed) != count) {
    fail(call, tvmconv_name_ERROR_THREADS);
  }
  return atomic_load_explicit(&call->status, memory_order_relaxed) == tvmconv_name_OK ? 0 : -1;
}

int tvmconv_name_rt_barrier(int task, void *environment) {
  (void)task, (void)environment; /* tasks may run one after the other */
  fail(current->call, tvmconv_name_ERROR_KERNEL);
  return -1;
}

static int threads_of(const tvmconv_name_call *given) {
  if (given != NULL && given->threads > 0) return given->threads;
  return hooks.threads > 0 ? hooks.threads : tvmconv_name_rt_pool_threads();
}

/* Room to align a workspace of any address to a line. */
static size_t total(struct workspace size, int threads) {
  size_t bytes = size.shared + (size_t)threads * size.task;
  return bytes > 0 ? bytes + LINE - 1 : 0;
}

static int begin(struct call *call, const tvmconv_name_call *given, struct workspace size) {
  call->parallel_for = hooks.parallel_for != NULL ? hooks.parallel_for : tvmconv_name_rt_pool_for;
  call->context = hooks.context;
  call->threads = threads_of(given);
  call->workspace = NULL;
  call->size = size;
  atomic_init(&call->status, tvmconv_name_OK);
  if (given == NULL) return tvmconv_name_OK;
  if (given->threads < 0) return tvmconv_name_ERROR_ARGUMENT;
  if (given->parallel_for != NULL) {
    if (given->threads == 0) return tvmconv_name_ERROR_ARGUMENT;
    call->parallel_for = given->parallel_for;
    call->context = given->context;
  }
  if (given->workspace != NULL) {
    if (given->workspace_bytes < total(size, call->threads)) return tvmconv_name_ERROR_WORKSPACE;
    call->workspace = (char *)(((uintptr_t)given->workspace + LINE - 1) / LINE * LINE);
  }
  return tvmconv_name_OK;
}

/* An array without elements may be NULL, which kernels would refuse. */
static int fill(struct tensor *tensor, const struct argument *argument, const void *array) {
  static _Alignas(LINE) char nothing[LINE];
  size_t alignment = argument->bits / 8;
  if (argument->elements == 0) array = nothing;
  if (array == NULL || (uintptr_t)array % alignment != 0) return tvmconv_name_ERROR_ARGUMENT;
  *tensor = (struct tensor){(void *)(uintptr_t)array, ON_CPU, 0, argument->rank, argument->code, argument->bits, 1,
                            argument->shape,          NULL,   0};
  return tvmconv_name_OK;
}

enum { MOST_ARGUMENTS = 8 };

static int enter(struct call *call, function *called, const struct argument *const *types, const void *const *arrays,
                 int count, const int64_t *numbers, int number_count) {
  struct tensor tensors[MOST_ARGUMENTS];
  struct any arguments[MOST_ARGUMENTS + MOST_AXES], result = {0, 0, {0}};
  for (int i = 0; i < count; ++i) {
    int status = fill(&tensors[i], types[i], arrays[i]);
    if (status != tvmconv_name_OK) return status;
    arguments[i].type = TENSOR;
    arguments[i].padding = 0;
    arguments[i].value.pointer = &tensors[i];
  }
  for (int i = 0; i < number_count; ++i) {
    arguments[count].type = INTEGER;
    arguments[count].padding = 0;
    arguments[count++].value.integer = numbers[i];
  }
  struct frame frame = {call, call->workspace, call->workspace, 0, NULL}, *outer = current;
  if (call->workspace != NULL) frame.end += call->size.shared;
  current = &frame;
  int failed = called(NULL, arguments, count, &result);
  leave(&frame, outer);
  int status = atomic_load_explicit(&call->status, memory_order_relaxed);
  return failed != 0 && status == tvmconv_name_OK ? tvmconv_name_ERROR_KERNEL : status;
}

int tvmconv_name_rt_run(const struct kernel *kernel, enum entry entry, const tvmconv_name_call *given,
                        const void *const *arrays) {
  const struct variant *variant = tvmconv_name_rt_variant(kernel);
  if (variant == NULL) return tvmconv_name_ERROR_CPU;
  const struct argument *types[MOST_ARGUMENTS];
  for (int i = 0; i <= kernel->inputs; ++i) types[i] = &kernel->arguments[i];
  if (types[kernel->inputs]->elements == 0) return tvmconv_name_OK;
  int packed = entry == PACKED && variant->pack != NULL;
  if (packed) types[1] = &variant->packed_filter;
  struct call call;
  int status = begin(&call, given, packed ? variant->packed_workspace : variant->plain_workspace);
  if (status != tvmconv_name_OK) return status;
  return enter(&call, packed ? variant->packed : variant->plain, types, arrays, kernel->inputs + 1, kernel->numbers,
               kernel->number_count);
}

int tvmconv_name_rt_pack(const struct kernel *kernel, const void *filter, void *packed) {
  const struct variant *variant = tvmconv_name_rt_variant(kernel);
  if (variant == NULL) return tvmconv_name_ERROR_CPU;
  size_t bytes = tvmconv_name_rt_packed_bytes(kernel);
  if (bytes == 0) return tvmconv_name_OK;
  if (filter == NULL || packed == NULL) return tvmconv_name_ERROR_ARGUMENT;
  if (variant->pack == NULL) {
    memcpy(packed, filter, bytes);
    return tvmconv_name_OK;
  }
  const struct argument *types[] = {&kernel->arguments[1], &variant->packed_filter};
  const void *arrays[] = {filter, packed};
  struct call call;
  int status = begin(&call, NULL, variant->pack_workspace);
  if (status != tvmconv_name_OK) return status;
  memset(packed, 0, bytes); /* padding is 0: equal filters give equal bytes */
  return enter(&call, variant->pack, types, arrays, 2, NULL, 0);
}

size_t tvmconv_name_rt_packed_bytes(const struct kernel *kernel) {
  const struct variant *variant = tvmconv_name_rt_variant(kernel);
  if (variant == NULL) return 0;
  const struct argument *filter = variant->pack != NULL ? &variant->packed_filter : &kernel->arguments[1];
  return filter->elements * (filter->bits / 8);
}

size_t tvmconv_name_rt_workspace_bytes(const struct kernel *kernel, enum entry entry, int threads) {
  const struct variant *variant = tvmconv_name_rt_variant(kernel);
  if (variant == NULL) return 0;
  int packed = entry == PACKED && variant->pack != NULL;
  return total(packed ? variant->packed_workspace : variant->plain_workspace, threads > 0 ? threads : threads_of(NULL));
}
