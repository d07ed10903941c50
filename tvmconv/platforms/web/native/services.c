/* Threads, errors and memory of a module: what Linux has of a pool, of tvm-ffi, and of the system. There is one thread. */
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

#include "parallel.h"

#define EXPORT __attribute__((visibility("default")))

int tvmconv_threads(void) { return 1; }

int tvmconv_parallel_for(int threads, int64_t count, Body body, void* data) {
  (void)threads;
  for (int64_t index = 0; index < count; index++)
    if (body(data, index) != 0) return 1;
  return 0;
}

int tvmconv_parallel_for_openmp(int threads, int64_t count, Body body, void* data) {
  return tvmconv_parallel_for(threads, count, body, data);
}

int tvmconv_by_team(int threads, int (*call)(void* data), void* data) {
  (void)threads;
  return call(data);
}

/* Message of the last error, with its kind first. */
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

/* No other thread raises one that would have to be carried. */
void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle* error) { *error = NULL; }
void TVMFFIErrorSetRaised(TVMFFIObjectHandle error) { (void)error; }
int TVMFFIObjectDecRef(TVMFFIObjectHandle error) {
  (void)error;
  return 0;
}

EXPORT const char* tvmconv_raised(void) { return raised; }

/* Memory from a cache line on, which stays; NULL: there is none. */
EXPORT void* tvmconv_place(size_t bytes) { return bytes > SIZE_MAX - 127 ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64 + 64); }

unsigned char* tvmconv_weights;
EXPORT void tvmconv_set_weights(unsigned char* weights) { tvmconv_weights = weights; }
