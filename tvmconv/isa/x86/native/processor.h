/* Definitions for the run time of a library, on an x86-64 CPU. */
#pragma once

/* The first version of glibc for it. */
#define OLDEST_GLIBC "GLIBC_2.2.5"
/* Leaves the core to its other thread, and its bus to others, for some cycles. */
#define PAUSE() __builtin_ia32_pause()
