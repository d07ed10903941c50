/* Runs every kernel of the library `tested` in all the ways that it has; those with a plain filter, and those with a packed one, must agree bit for bit.
 *
 * usage: runner FOLDER. FOLDER/NUMBER.in holds the inputs of the kernel NUMBER of the table, one after the other, each from a cache
 * line on; FOLDER/NUMBER.out is written. Kernels without inputs there are left out.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tested.h"

#ifdef _WIN32
#include <malloc.h>
#define posix_memalign(place, alignment, bytes) ((*(place) = _aligned_malloc(bytes, alignment)) == NULL)
#define free _aligned_free
#endif

enum { MOST_INPUTS = 8, MOST_THREADS = 16, GUARD = 4096 };

static void *block(size_t bytes) {
  void *found = NULL;
  if (posix_memalign(&found, 64, bytes + 64) != 0) exit(9);
  return found;
}

static void check(int status, const char *what, const char *signature) {
  if (status == tested_OK) return;
  fprintf(stderr, "%s: %s: %s\n", signature, what, tested_error_string(status));
  exit(1);
}

/* One thread for each task, started here: each share of a loop on a stack of its own. */
struct work {
  void (*task)(void *, int);
  void *argument;
  int index;
};
static void *do_work(void *given) {
  struct work *work = given;
  work->task(work->argument, work->index);
  return NULL;
}
static int in_threads(void *context, int count, void (*task)(void *, int), void *argument) {
  pthread_t threads[MOST_THREADS];
  struct work works[MOST_THREADS];
  pthread_attr_t attributes;
  atomic_fetch_add((atomic_int *)context, 1);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 1 << 20); /* what the header asks for */
  for (int i = 0; i < count; ++i) {
    works[i].task = task;
    works[i].argument = argument;
    works[i].index = i;
    if (pthread_create(&threads[i], &attributes, do_work, &works[i]) != 0) return 1;
  }
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  pthread_attr_destroy(&attributes);
  return 0;
}

static atomic_int allocated;
static void *allocate(void *context, size_t bytes, size_t alignment) {
  void *found = NULL;
  (void)context;
  atomic_fetch_add(&allocated, 1);
  return posix_memalign(&found, alignment, bytes) == 0 ? found : NULL;
}
static void release(void *context, void *given) {
  (void)context;
  free(given);
}

static void run(const tested_kernel *kernel, const char *folder, int number) {
  char path[4096];
  const void *inputs[MOST_INPUTS], *packed_inputs[MOST_INPUTS];
  void *held[MOST_INPUTS];
  snprintf(path, sizeof path, "%s/%d.in", folder, number);
  FILE *file = fopen(path, "rb");
  if (file == NULL) return;
  for (int i = 0; i < kernel->inputs; ++i) {
    size_t bytes = kernel->arrays[i].bytes, padded = (bytes + 63) / 64 * 64;
    held[i] = block(padded);
    if (fread(held[i], 1, padded, file) != padded) exit(8);
    inputs[i] = packed_inputs[i] = held[i];
  }
  fclose(file);
  size_t bytes = kernel->arrays[kernel->inputs].bytes;
  /* Plain filters may be read by another algorithm than packed ones, which adds in another order. */
  unsigned char *firsts[2] = {block(bytes), block(bytes)}, *other = block(bytes);
  void *packed = block(kernel->packed_bytes());
  check(kernel->pack(inputs[1], packed), "pack", kernel->signature);
  packed_inputs[1] = packed;
  for (int way = 0; way < 8; ++way) {
    int is_packed = way & 1, given = way & 2, several = way & 4;
    const char *what = is_packed ? "packed" : "plain";
    atomic_int launches = 0;
    tested_call call;
    memset(&call, 0, sizeof call);
    if (several) {
      call.parallel_for = in_threads;
      call.context = &launches;
    }
    call.threads = several ? 3 : 1;
    unsigned char *workspace = NULL;
    size_t size = (is_packed ? kernel->packed_workspace_bytes : kernel->workspace_bytes)(call.threads);
    if (given) {
      workspace = block(size + GUARD);
      memset(workspace, 0xA5, size + GUARD);
      call.workspace = workspace + 1; /* of any alignment */
      call.workspace_bytes = size;
    }
    atomic_store(&allocated, 0);
    unsigned char *output = way > 1 ? other : firsts[is_packed];
    memset(output, 0xEE, bytes);
    check((is_packed ? kernel->run_packed : kernel->run)(&call, is_packed ? packed_inputs : inputs, output), what,
          kernel->signature);
    if (memcmp(firsts[is_packed], output, bytes) != 0) {
      fprintf(stderr, "%s: way %d differs\n", kernel->signature, way);
      exit(2);
    }
    if (given) {
      for (size_t i = size + 1; i < size + GUARD; ++i)
        if (workspace[i] != 0xA5) {
          fprintf(stderr, "%s: way %d writes beyond its workspace of %zu bytes\n", kernel->signature, way, size);
          exit(3);
        }
      if (atomic_load(&allocated) != 0) {
        fprintf(stderr, "%s: way %d allocates, though it has a workspace\n", kernel->signature, way);
        exit(4);
      }
      if (size > 0) {
        call.workspace_bytes = size - 1;
        if (kernel->run(&call, inputs, other) == tested_OK && !is_packed) exit(5);
        call.workspace_bytes = size;
      }
      free(workspace);
    } else if (size == 0 && atomic_load(&allocated) != 0) {
      fprintf(stderr, "%s: way %d allocates, and says that it needs nothing\n", kernel->signature, way);
      exit(6);
    }
  }
  snprintf(path, sizeof path, "%s/%d.out", folder, number);
  file = fopen(path, "wb");
  if (file == NULL) exit(7);
  for (int i = 0; i < 2; ++i)
    if (fwrite(firsts[i], 1, bytes, file) != bytes) exit(7);
  if (fclose(file) != 0) exit(7);
  for (int i = 0; i < kernel->inputs; ++i) free(held[i]);
  free(firsts[0]);
  free(firsts[1]);
  free(other);
  free(packed);
}

int main(int count, char **arguments) {
  if (count != 2) return 64;
  if (!tested_supported()) return 65;
  if (tested_set_allocator(allocate, release, NULL) != tested_OK) return 66;
  for (int i = 0; i < tested_kernel_count; ++i) {
    if (tested_find(tested_kernels[i]->signature) != tested_kernels[i]) return 67;
    run(tested_kernels[i], arguments[1], i);
  }
  return 0;
}
