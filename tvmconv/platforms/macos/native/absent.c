/* Stubs of functions that a network's library lacks and never calls: weak undefined symbols do not link here. */
int __tvm_ffi_tvmconv_kernel(void) { return -1; }
int __tvm_ffi_tvmconv_pack(void) { return -1; }
int __tvm_ffi_tvmconv_packed(void) { return -1; }
int tvmconv_allow_tiles(void) { return -1; }
