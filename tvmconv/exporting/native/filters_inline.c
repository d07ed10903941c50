/* Arrays of layers are data of the archive. */
#include "tvmconv-layers.h"

const void *tvmconv_name_rt_address(const struct blob *blob) { return blob->address; }
