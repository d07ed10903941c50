/* Weights of a network, a lock, and a clock, for its executor (tvmconv/network/emit/native/executor.c), which has `failed` and `no_memory`.
 *
 * In the library's file, weights, which begin at a page, a description and an end with their offsets follow the part that the loader
 * maps (tvmconv/runtime/networks/file.py), once for each network. Weights are mapped read-only: they are read at their first use,
 * and shared by processes; in huge pages, if the page cache has the file in such (Linux 6.18 on ext4). */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int File;
#include "file_end.h"

typedef struct {
  unsigned char* space; /* reserved addresses, which include the weights */
  uint64_t space_bytes;
  const unsigned char* bytes;
} Weights;

/* Lock of the free instances of all networks in a library. It is held during fork, so a child never inherits it from another thread. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }
__attribute__((constructor)) static void prepare_forks(void) { pthread_atfork(lock, unlock, unlock); }

/* Weights that are linked into the program. */
extern unsigned char tvmconv_network_weights[] __attribute__((weak));

/* Maps a part of a file at an address with the same offset in a huge page as in the file, which huge pages require; returns 0 or -1. */
static int map_part(Weights* weights, int file, uint64_t offset, uint64_t bytes) {
  if (bytes == 0) return 0;
  weights->space_bytes = bytes + HUGE_PAGE_BYTES;
  void* space = mmap(NULL, weights->space_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return -1;
  weights->space = space;
  unsigned char* start = weights->space + (offset - (uintptr_t)space) % HUGE_PAGE_BYTES;
  if (mmap(start, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, (off_t)offset) == MAP_FAILED) {
    munmap(space, weights->space_bytes);
    return -1;
  }
  advise_huge(start, bytes);
  weights->bytes = start;
  return 0;
}

static int read_at(File file, uint64_t place, void* to, size_t bytes) { return pread(file, to, bytes, (off_t)place) == (ssize_t)bytes; }

/* Maps the weights in the file of the library with this function; returns 0, or raises. */
static int map_weights(Weights* weights) {
  if (tvmconv_network_weights != NULL) {
    weights->bytes = tvmconv_network_weights;
    return 0;
  }
  Dl_info info;
  if (dladdr(MAGIC, &info) == 0) return failed("RuntimeError", "the loader does not tell where the network's file is");
  int file = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed("RuntimeError", "the network's file is gone, and its weights with it");
  struct stat status;
  End end;
  int ended = find_end(file, fstat(file, &status) == 0 ? (uint64_t)status.st_size : 0, &end);
  if (ended == 0 && map_part(weights, file, end.weights, end.weight_bytes) != 0) ended = no_memory();
  close(file);
  return ended;
}

static void unmap_weights(Weights* weights) {
  if (weights->space) munmap(weights->space, weights->space_bytes);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
