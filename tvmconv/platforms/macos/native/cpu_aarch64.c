/* Detection of the archive's targets that this CPU runs, from the features that macOS reports. */
#include <sys/sysctl.h>

#include "tvmconv-runtime.h"

/* Linux's name. */
struct feature {
  uint8_t word, bit;
  const char *name;
};

#include "tvmconv-targets.h"

static int has(const char *name) {
  int found = 0;
  size_t bytes = sizeof found;
  if (strcmp(name, "asimd") == 0) return 1; /* all have it */
  const char *asked = strcmp(name, "asimdhp") == 0 ? "hw.optional.arm.FEAT_FP16" : strcmp(name, "bf16") == 0 ? "hw.optional.arm.FEAT_BF16" : "";
  return sysctlbyname(asked, &found, &bytes, NULL, 0) == 0 && found != 0;
}

uint32_t tvmconv_name_rt_detect(void) {
  uint32_t found = 0;
  for (int i = 0; i < TARGETS; ++i) {
    int all = 1;
    for (int f = 0; all && f < targets[i].count; ++f) {
      const char *name = targets[i].features[f].name;
      all = !hidden_feature(name) && has(name);
    }
    found |= (uint32_t)all << i;
  }
  return found;
}
