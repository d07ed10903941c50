/* Default number of a kernel's threads: the least of OMP_NUM_THREADS and of the processors that this process may use, of more than
 * eight one of each core. */
#include "threads.h"

#include <stdlib.h>

#include "environment.h"
#include "parallel.h"

/* The cores that this process may use a processor of; 0: the system does not tell. */
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
      count += own == 0 || (core->Processor.GroupMask[0].Mask & own) != 0; /* 0: of several groups, all of them */
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
