/* Features of the CPU, as sysctl reports them. */
#include <stdint.h>
#include <sys/sysctl.h>

/* Feature by Linux's name; `word` and `bit`, Linux's, are not used. */
struct feature {
  uint8_t word, bit;
  const char *name;
};

#include "tvmconv-detect.h"

/* Linux's names of features, and macOS's, as isa/aarch64/sysctl.py has them. */
static const char *const names[][2] = {
    {"asimddp", "hw.optional.arm.FEAT_DotProd"},
    {"asimdhp", "hw.optional.arm.FEAT_FP16"},
    {"bf16", "hw.optional.arm.FEAT_BF16"},
    {"i8mm", "hw.optional.arm.FEAT_I8MM"},
};

static int has(const struct feature *feature) {
  const char *name = feature->name;
  int found = strcmp(name, "asimd") == 0; /* every CPU has it */
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    size_t bytes = sizeof found;
    if (strcmp(name, names[i][0]) == 0 && sysctlbyname(names[i][1], &found, &bytes, NULL, 0) != 0) return 0;
  }
  return found != 0;
}
