/* Implementation of snprintf by the function that Microsoft's headers call: its C library does not export snprintf. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

int __stdio_common_vsprintf(uint64_t options, char* text, size_t bytes, const char* format, void* locale, va_list given);
#define STANDARD_RESULT 2u /* return the untruncated length, as C99 does */

int tvmconv_formatted(char* text, size_t bytes, const char* format, ...) {
  va_list given;
  va_start(given, format);
  const int length = __stdio_common_vsprintf(STANDARD_RESULT, text, bytes, format, NULL, given);
  va_end(given);
  return length;
}
