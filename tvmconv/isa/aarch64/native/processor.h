/* Definitions for the run time of a library, on a 64-bit ARM CPU. */
#pragma once

/* The first version of glibc for it. */
#define OLDEST_GLIBC "GLIBC_2.17"
/* Leaves the core to its other thread, and its bus to others, for some cycles. */
#define PAUSE() __asm__ volatile("yield")
