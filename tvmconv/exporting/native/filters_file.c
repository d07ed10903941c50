/* Arrays of layers are in a file that is mapped. */
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tvmconv-filters.h"
#include "tvmconv-layers.h"

static _Atomic(const char *) mapped;

int tvmconv_name_open_filters(const char *path) {
  if (path == NULL) return tvmconv_name_ERROR_ARGUMENT;
  if (atomic_load(&mapped) != NULL) return tvmconv_name_OK;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return tvmconv_name_ERROR_FILTERS;
  struct stat status;
  void *start = MAP_FAILED;
  if (fstat(file, &status) == 0 && (uint64_t)status.st_size == FILE_BYTES)
    start = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (start == MAP_FAILED) return tvmconv_name_ERROR_FILTERS;
  const char *none = NULL;
  if (memcmp(start, first_line, sizeof first_line) != 0) {
    munmap(start, FILE_BYTES);
    return tvmconv_name_ERROR_FILTERS;
  }
  if (!atomic_compare_exchange_strong(&mapped, &none, (const char *)start)) munmap(start, FILE_BYTES); /* another thread's */
  return tvmconv_name_OK;
}

void tvmconv_name_close_filters(void) {
  const char *start = atomic_exchange(&mapped, NULL);
  if (start != NULL) munmap((void *)(uintptr_t)start, FILE_BYTES);
}

const void *tvmconv_name_rt_address(const struct blob *blob) {
  const char *start = atomic_load_explicit(&mapped, memory_order_acquire);
  return start != NULL ? start + blob->offset : NULL;
}
