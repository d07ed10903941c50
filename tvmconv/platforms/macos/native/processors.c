/* Default number of a kernel's threads: the lesser of OMP_NUM_THREADS and the performance cores. */
#include <sys/sysctl.h>

#include "environment.h"
#include "parallel.h"
#include "threads.h"

int tvmconv_default_threads(void) {
  int cores = 0;
  size_t bytes = sizeof cores;
  if (sysctlbyname("hw.perflevel0.physicalcpu", &cores, &bytes, NULL, 0) != 0 || cores < 1) cores = usable_processors();
  return least(cores, environment());
}
