/* Weights of a network, a lock, and a clock: as on Linux. */
#include "../../linux/native/host.h"
