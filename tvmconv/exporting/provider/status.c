/* Statuses of onnxruntime. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tvmconv-ort.h"

struct ort_functions ort;

int good(ort_status *status) {
  if (status == NULL) return 1;
  ort.release_status(status);
  return 0;
}

ort_status *fail(int code, const char *format, ...) {
  char message[512] = "tvmconv: ";
  const size_t begin = strlen(message);
  va_list values;
  va_start(values, format);
  vsnprintf(message + begin, sizeof message - begin, format, values);
  va_end(values);
  return ort.create_status(code, message);
}
