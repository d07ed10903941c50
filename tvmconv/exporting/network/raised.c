/* Errors in the place of tvm-ffi's library, whose functions networks call: each thread keeps the text of its last. */
#include "tvmconv-raised.h"

#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

static __thread char raised[400];

const char *tvmconv_raised(void) { return raised; }

/* Writes a text behind the characters that are used; returns how many are then. */
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

/* An error is carried from the thread that raised it to its caller as a copy of its text. */
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
