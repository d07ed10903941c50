/* Features of the CPU, as Linux passes them to programs. */
#include <stdint.h>
#include <sys/auxv.h>

/* AT_HWCAP or AT_HWCAP2, a bit of it, and Linux's name. */
struct feature {
  uint8_t word, bit;
  const char *name;
};

#include "tvmconv-detect.h"

static int has(const struct feature *feature) { return (int)(getauxval(feature->word) >> feature->bit & 1); }
