/* Errors in the place of tvm-ffi's library, whose functions networks call: each thread keeps the text of its last. */
#include "tvmconv-raised.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

static __thread char raised[400];

const char *tvmconv_raised(void) { return raised; }

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) { snprintf(raised, sizeof raised, "%s: %s", kind, message); }

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  size_t used = (size_t)snprintf(raised, sizeof raised, "%s: ", kind);
  for (int32_t i = 0; i < count && used < sizeof raised; ++i)
    if (parts[i] != NULL) used += (size_t)snprintf(raised + used, sizeof raised - used, "%s", parts[i]);
}

/* An error is carried from the thread that raised it to its caller as a copy of its text. */
void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle *error) { *error = strdup(raised); }
void TVMFFIErrorSetRaised(TVMFFIObjectHandle error) {
  snprintf(raised, sizeof raised, "%s", error != NULL ? (const char *)error : "");
  free(error);
}
int TVMFFIObjectDecRef(TVMFFIObjectHandle error) {
  free(error);
  return 0;
}
