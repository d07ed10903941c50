/* Detection of the archive's targets that this CPU runs, from the features that Linux passes to programs. */
#include <sys/auxv.h>

#include "tvmconv-runtime.h"

/* AT_HWCAP or AT_HWCAP2, a bit of it, and Linux's name. */
struct feature {
  uint8_t word, bit;
  const char *name;
};

#include "tvmconv-targets.h"

uint32_t tvmconv_name_rt_detect(void) {
  uint32_t found = 0;
  for (int i = 0; i < TARGETS; ++i) {
    int all = 1;
    for (int f = 0; all && f < targets[i].count; ++f)
      all = !hidden_feature(targets[i].features[f].name) &&
            (getauxval(targets[i].features[f].word) >> targets[i].features[f].bit & 1);
    found |= (uint32_t)all << i;
  }
  return found;
}
