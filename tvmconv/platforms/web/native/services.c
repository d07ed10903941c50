/* Errors and memory of a module, which tvm-ffi and the system provide on Linux; threads are in alone.c or workers.c. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

#define EXPORT __attribute__((visibility("default")))

/* The C library's allocator is not thread-safe, and iterations of a parallel loop allocate workspaces; otherwise only the page's
 * thread allocates, between loops. All C files call these wrappers (the platform's compile_flags). */
#undef malloc
#undef free
void* malloc(size_t bytes);
void free(void* place);
static atomic_flag allocating;

void* tvmconv_malloc(size_t bytes) {
  while (atomic_flag_test_and_set(&allocating)) {
  }
  void* place = malloc(bytes);
  atomic_flag_clear(&allocating);
  return place;
}

void tvmconv_free(void* place) {
  while (atomic_flag_test_and_set(&allocating)) {
  }
  free(place);
  atomic_flag_clear(&allocating);
}

/* Text of the last error: its kind, a colon, the message. */
static char raised[400];

static void append(const char* text) {
  if (text != NULL) strncat(raised, text, sizeof raised - 1 - strlen(raised));
}

void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count) {
  raised[0] = 0;
  append(kind);
  append(": ");
  for (int32_t part = 0; part < count; part++) append(parts[part]);
}

void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message) { TVMFFIErrorSetRaisedFromCStrParts(kind, &message, 1); }

/* Errors need not be moved between threads: all threads share `raised`. */
void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle* error) { *error = NULL; }
void TVMFFIErrorSetRaised(TVMFFIObjectHandle error) { (void)error; }
int TVMFFIObjectDecRef(TVMFFIObjectHandle error) {
  (void)error;
  return 0;
}

EXPORT const char* tvmconv_raised(void) { return raised; }

/* Returns memory that begins at a cache line and is never freed; NULL: there is none. */
EXPORT void* tvmconv_place(size_t bytes) { return bytes > SIZE_MAX - 127 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64 + 64); }

unsigned char* tvmconv_weights;
EXPORT void tvmconv_set_weights(unsigned char* weights) { tvmconv_weights = weights; }
