/* Detection of the archive's targets that this CPU runs. A file for a CPU defines `struct feature` before, and `has` after it. */
#include "tvmconv-runtime.h"
#include "tvmconv-targets.h"

static int has(const struct feature *feature);

uint32_t tvmconv_name_rt_detect(void) {
  uint32_t found = 0;
  for (int i = 0; i < TARGETS; ++i) {
    int all = 1;
    for (int f = 0; all && f < targets[i].count; ++f)
      all = !hidden_feature(targets[i].features[f].name) && has(&targets[i].features[f]);
    found |= (uint32_t)all << i;
  }
  return found;
}
