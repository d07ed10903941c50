/* Functions that a network's library is without, and nobody calls: linkers here take no name that may be missing. */
int __tvm_ffi_tvmconv_kernel(void) { return -1; }
int __tvm_ffi_tvmconv_pack(void) { return -1; }
int __tvm_ffi_tvmconv_packed(void) { return -1; }
int tvmconv_allow_tiles(void) { return -1; }
