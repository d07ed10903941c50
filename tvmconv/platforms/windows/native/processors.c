/* Default number of a kernel's threads: the lesser of OMP_NUM_THREADS and the processors that this process may use; without the
 * variable, more than eight processors count one for each core. */
#include "threads.h"

#include <stdlib.h>

#include "environment.h"
#include "parallel.h"

/* Returns the number of cores with a processor that this process may use; 0: the system does not report it. */
static int cores(void) {
  DWORD_PTR own = 0, all = 0;
  DWORD bytes = 0;
  int count = 0;
  GetLogicalProcessorInformationEx(RelationProcessorCore, NULL, &bytes);
  char* found = malloc(bytes);
  if (found != NULL && GetLogicalProcessorInformationEx(RelationProcessorCore, (void*)found, &bytes)) {
    GetProcessAffinityMask(GetCurrentProcess(), &own, &all);
    for (DWORD at = 0; at < bytes;) {
      const SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX* core = (const void*)(found + at);
      count += own == 0 || (core->Processor.GroupMask[0].Mask & own) != 0; /* own == 0: the process has several groups, so all count */
      at += core->Size;
    }
  }
  free(found);
  return count;
}

int tvmconv_default_threads(void) {
  const int asked = environment(), usable = usable_processors();
  if (usable <= ALL_PROCESSORS || asked != INT_MAX) return least(usable, asked);
  const int each = cores();
  return each == 0 ? usable : each > ALL_PROCESSORS ? least(each, usable) : ALL_PROCESSORS;
}
