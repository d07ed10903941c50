/* Memory of Android: as on Linux. */
#include "../../linux/native/system.h"
