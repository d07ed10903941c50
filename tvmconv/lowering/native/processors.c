/* Default number of a kernel's threads. `tvmconv/runtime/processors.py` does the same. */
#define _GNU_SOURCE
#include <features.h>
/* glibc 2.38 has others of C23, which older ones, and musl, lack. */
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "environment.h"
#include "parallel.h"

/* Room for a path, and for a line of /proc/self/mountinfo, which has several. */
#define PATH 4096
#define LINE (4 * PATH)
/* Marks the numbers of a list, "0,64" or "0-1", those below `most`; returns whether there is one. */
static int read_list(const char* path, char* marked, int most) {
  FILE* file = fopen(path, "re");
  memset(marked, 0, most);
  int from, to;
  for (int separator = ','; file != NULL && separator == ',' && fscanf(file, "%d", &from) == 1;) {
    to = from;
    if ((separator = fgetc(file)) == '-' && fscanf(file, "%d", &to) == 1) separator = fgetc(file);
    for (int each = from; each <= to && each < most && each >= 0; each++) marked[each] = 1;
  }
  if (file != NULL) fclose(file);
  return file != NULL;
}

/* Returns whether a processor is the first allowed one of its core. */
static int is_first(const char* prefix, int processor, const char* allowed, int most, char* marked) {
  char path[PATH];
  snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", prefix, processor);
  read_list(path, marked, most);
  for (int each = 0; each < processor; each++)
    if (marked[each] && allowed[each]) return 0;
  return 1;
}

/* Returns the capacity of a processor relative to others: efficient cores have less. 0: the kernel has none, as before Linux 6.12 on x86. */
static int capacity(const char* prefix, int processor) {
  char path[PATH];
  snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/cpu_capacity", prefix, processor);
  FILE* file = fopen(path, "re");
  int found = 0;
  if (file == NULL) return 0;
  if (fscanf(file, "%d", &found) != 1) found = 0;
  fclose(file);
  return found;
}

/* Gives 1 to processors of performance cores, which have performance counters of their own on x86; returns whether one is allowed. */
static int mark_performance(const char* prefix, int* capacities, const char* allowed, int most, char* marked) {
  char path[PATH];
  int found = 0;
  snprintf(path, sizeof path, "%s/sys/devices/cpu_core/cpus", prefix);
  read_list(path, marked, most);
  for (int each = 0; each < most; each++) found |= capacities[each] = allowed[each] && marked[each];
  return found;
}

/* Returns the most of the chosen processors that are of one NUMA node; all where the kernel knows no nodes. */
static int of_one_node(const char* prefix, const char* chosen, int most, char* marked, char* nodes) {
  char path[PATH];
  int all = 0, largest = 0;
  for (int each = 0; each < most; each++) all += chosen[each];
  snprintf(path, sizeof path, "%s/sys/devices/system/node/has_cpu", prefix);
  if (!read_list(path, nodes, most)) return all;
  for (int node = 0; node < most; node++) {
    if (!nodes[node]) continue;
    snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/cpulist", prefix, node);
    read_list(path, marked, most);
    int count = 0;
    for (int each = 0; each < most; each++) count += marked[each] && chosen[each];
    if (count > largest) largest = count;
  }
  return largest > 0 ? largest : all;
}

int tvmconv_cores(const char* prefix, const char* allowed, int most) {
  int count = 0, strongest = 0;
  for (int each = 0; each < most; each++) count += allowed[each] != 0;
  char* room = count <= ALL_PROCESSORS ? NULL : calloc(most, 3 + sizeof(int));
  if (room == NULL) return count;
  int* capacities = (int*)room;
  char *chosen = (char*)(capacities + most), *marked = chosen + most, *nodes = marked + most;
  for (int each = 0; each < most; each++)
    if (allowed[each] && (capacities[each] = capacity(prefix, each)) > strongest) strongest = capacities[each];
  if (strongest == 0) strongest = mark_performance(prefix, capacities, allowed, most, marked);
  for (int each = 0; each < most; each++)
    chosen[each] = allowed[each] && capacities[each] == strongest && is_first(prefix, each, allowed, most, marked);
  const int cores = of_one_node(prefix, chosen, most, marked, nodes);
  free(room);
  return cores > ALL_PROCESSORS ? cores : ALL_PROCESSORS;
}

/* Reads the processors of this thread, or of the process's first thread if these are more: a program may have bound this one. Returns their
 * number. */
static int read_affinity(size_t size, cpu_set_t* set) {
  const int first = sched_getaffinity(getpid(), size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
  const int own = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
  if (own >= first) return own;
  return sched_getaffinity(getpid(), size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
}

/* The processors that this process may use, or, if `cores`, as `tvmconv_cores` counts them. */
static int affinity(int cores) {
  /* As many bits as this kernel needs. */
  for (int most = CPU_SETSIZE; most <= 64 * CPU_SETSIZE; most *= 2) {
    size_t size = CPU_ALLOC_SIZE(most);
    cpu_set_t* set = malloc(size); /* musl has no function for it */
    char* allowed = calloc(most, 1);
    int count = set != NULL && allowed != NULL ? read_affinity(size, set) : 0;
    for (int each = 0; count > 0 && each < most; each++) allowed[each] = CPU_ISSET_S(each, size, set) != 0;
    if (count > 0 && cores) count = tvmconv_cores("", allowed, most);
    free(set);
    free(allowed);
    if (count > 0) return count;
  }
  return 1;
}

/* Reads up to two words of a file; returns how many. */
static int words(const char* folder, const char* name, char first[32], char second[32]) {
  char path[PATH + 32];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* file = fopen(path, "re");
  if (file == NULL) return 0;
  int found = fscanf(file, "%31s %31s", first, second);
  fclose(file);
  return found;
}

/* The processors whose time one control group gives, of version 2 or 1. */
static int group_quota(const char* folder, int version) {
  char quota[32], period[32], unused[32];
  if (version == 2 ? words(folder, "cpu.max", quota, period) != 2
                   : words(folder, "cpu.cfs_quota_us", quota, unused) < 1 || words(folder, "cpu.cfs_period_us", period, unused) < 1)
    return INT_MAX;
  long long time = atoll(quota), of = atoll(period); /* "max" is 0 */
  if (time <= 0 || of <= 0) return INT_MAX;
  long long processors = (time + of - 1) / of;
  return processors < INT_MAX ? processors : INT_MAX;
}

/* The least of a control group and those it is in, up to where `root` of its hierarchy is mounted. */
static int hierarchy_quota(const char* prefix, const char* mounted, const char* root, const char* group, int version) {
  char folder[PATH];
  size_t above = strlen(root);
  if (strcmp(root, "/") == 0) above = 0;
  /* A group that is not below what is mounted cannot be seen; what is mounted can. */
  const char* below = strncmp(group, root, above) == 0 && (group[above] == '/' || group[above] == '\0') ? group + above : "";
  if (strstr(below, "/..") != NULL) below = "";
  int top = snprintf(folder, sizeof folder, "%s%s", prefix, mounted);
  if (top < 0 || top + strlen(below) >= sizeof folder) return INT_MAX;
  strcpy(folder + top, below);
  for (int quota = INT_MAX;;) {
    quota = least(quota, group_quota(folder, version));
    char* last = strrchr(folder + top, '/');
    if (last == NULL) return quota;
    *last = '\0';
  }
}

/* Returns whether a list, "cpu,cpuacct", has the word "cpu". */
static int has_cpu(const char* list) {
  for (const char* word = list; word != NULL; word = strchr(word, ',')) {
    word += *word == ',';
    size_t length = strcspn(word, ",\n");
    if (length == 3 && strncmp(word, "cpu", 3) == 0) return 1;
  }
  return 0;
}

/* The group of this process in the hierarchy of version 2, or in that of version 1 which limits processors. */
static int find_group(const char* prefix, int version, char group[PATH]) {
  char line[LINE];
  snprintf(line, sizeof line, "%s/proc/self/cgroup", prefix);
  FILE* file = fopen(line, "re");
  int found = 0;
  while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
    char* controllers = strchr(line, ':');
    char* path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL) continue;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    found = version == 2 ? controllers[1] == '\0' : has_cpu(controllers + 1);
    if (found) snprintf(group, PATH, "%s", strcmp(path, "/") == 0 ? "" : path);
  }
  if (file != NULL) fclose(file);
  return found;
}

/* A mount's line: number, parent, device, root, where, options, ... - type, device, options of the file system. */
int tvmconv_quota(const char* prefix) {
  char line[LINE], group[PATH];
  snprintf(line, sizeof line, "%s/proc/self/mountinfo", prefix);
  FILE* file = fopen(line, "re");
  int quota = INT_MAX;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    char root[PATH], mounted[PATH], type[32], options[PATH];
    char* tail = strstr(line, " - ");
    if (tail == NULL || sscanf(line, "%*s %*s %*s %4095s %4095s", root, mounted) != 2 ||
        sscanf(tail, " - %31s %*s %4095s", type, options) != 2)
      continue;
    int version = strcmp(type, "cgroup2") == 0 ? 2 : strcmp(type, "cgroup") == 0 && has_cpu(options) ? 1 : 0;
    if (version != 0 && find_group(prefix, version, group))
      quota = least(quota, hierarchy_quota(prefix, mounted, root, group, version));
  }
  if (file != NULL) fclose(file);
  return quota;
}

int tvmconv_default_threads(void) {
  int asked = environment();
  return least(least(affinity(asked == INT_MAX), tvmconv_quota("")), asked);
}
