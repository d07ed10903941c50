/* Preloaded: the allocation of that number fails among those of this thread by a library of this name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void fail_at(int number);
int has_failed(void);

static __thread int left = -1, failed, looking;

void fail_at(int number) {
  left = number;
  failed = 0;
}
int has_failed(void) { return failed; }

static int fails(void *caller) {
  Dl_info info;
  if (left < 0 || looking) return 0;
  looking = 1;
  const int counts = dladdr(caller, &info) && info.dli_fname != NULL && strstr(info.dli_fname, "/scarce-provider.so") != NULL;
  looking = 0;
  if (counts && left-- == 0) failed = 1;
  return counts && left < 0;
}

void *malloc(size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size); }
