/* Features of the CPU by cpuid: those that Linux lists in /proc/cpuinfo. */
#include <cpuid.h>
#include <stdint.h>

/* Leaf and subleaf of cpuid, register, bit, the state (XCR0) that the system must save, and Linux's name. */
struct feature {
  uint32_t leaf, subleaf;
  uint8_t reg, bit;
  uint32_t state;
  const char *name;
};

#include "tvmconv-detect.h"

/* Bits of XCR0 for AMX's tiles, which also need the process's permission. */
#define TILES 0x60000u

/* Returns the state that the operating system saves on a context switch (XCR0). */
static uint64_t saved_state(void) {
  uint32_t a, b, c, d, low, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static int has(const struct feature *feature) {
  uint32_t registers[4] = {0, 0, 0, 0}; /* eax, ebx, ecx, edx */
  if (!__get_cpuid_count(feature->leaf, feature->subleaf, &registers[0], &registers[1], &registers[2], &registers[3]))
    return 0;
  if ((feature->state & TILES) && tvmconv_name_rt_allow_tiles() != 0) return 0;
  return (registers[feature->reg] >> feature->bit & 1) && (saved_state() & feature->state) == feature->state;
}
