/* Weights of a network, a lock, and a clock: as on Linux. */
#include "../../linux/native/host.h"

_Static_assert(sizeof(struct stat) == (sizeof(nlink_t) == 8 ? 144 : 128), "struct stat is not the kernel's, which bionic's is");
_Static_assert(offsetof(struct stat, st_size) == 48, "a file's size is elsewhere in bionic's struct stat");
