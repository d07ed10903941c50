/* The vectors for which a provider's operations are compiled (`Isa.levels`), the widest first, and which of them this CPU has. */
#pragma once

#include <stdlib.h>

#define LEVELS(EACH) EACH(v4) EACH(v3)
/* None but the least where the environment hides features (tvmconv-runtime.h). */
#define HAS_v4                                                                                                          \
  (getenv("TVMCONV_HIDDEN_FEATURES") == NULL && __builtin_cpu_supports("avx512f") &&                                    \
   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&    \
   __builtin_cpu_supports("avx512cd"))
#define HAS_v3 1 /* as all kernels need it */
