/* Replacement of tvm-ffi's functions for errors, which networks call: each thread keeps the text of its last error. */
#include "tvmconv-raised.h"

#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

static __thread char raised[400];

const char *tvmconv_raised(void) { return raised; }

/* Appends a text after `used` characters, as far as it fits; returns the new length. */
static size_t add(size_t used, const char *text) {
  while (*text != '\0' && used + 1 < sizeof raised) raised[used++] = *text++;
  raised[used] = '\0';
  return used;
}

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  size_t used = add(add(0, kind), ": ");
  for (int32_t i = 0; i < count; ++i)
    if (parts[i] != NULL) used = add(used, parts[i]);
}
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) { TVMFFIErrorSetRaisedFromCStrParts(kind, &message, 1); }

/* A worker's error reaches the calling thread as a copy of its text. */
void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle *error) {
  const size_t bytes = strlen(raised) + 1;
  *error = malloc(bytes);
  if (*error != NULL) memcpy(*error, raised, bytes);
}
void TVMFFIErrorSetRaised(TVMFFIObjectHandle error) {
  add(0, error != NULL ? (const char *)error : "");
  free(error);
}
int TVMFFIObjectDecRef(TVMFFIObjectHandle error) {
  free(error);
  return 0;
}
