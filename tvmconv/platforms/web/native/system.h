/* Memory of the web, for launcher.c and executor.c. */
#pragma once
#include <stdint.h>

#define HUGE_PAGE_BYTES 64u /* there are none */
#define advise_huge(place, bytes) ((void)(place), (void)(bytes))
