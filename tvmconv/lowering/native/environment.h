/* The number of threads that a user asks for, for processors.c of each system. */
#pragma once
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Number of processors up to which each has a thread, also where two are of one core: as in clouds' machines, where everything was measured. */
#define ALL_PROCESSORS 8

static inline int least(int a, int b) { return a < b ? a : b; }

/* The first number of a list, one for each level of nested parallelism; loops have one level. */
static inline int environment(void) {
  const char* text = getenv("OMP_NUM_THREADS");
  char* rest;
  long number = text ? strtol(text, &rest, 10) : 0;
  if (number < 1 || number > INT_MAX) return INT_MAX;
  rest += strspn(rest, " \t\n");
  return *rest == '\0' || *rest == ',' ? (int)number : INT_MAX;
}
