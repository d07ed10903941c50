/* Opens the network `nëtz.dll` of this folder by the functions that Python calls, as the library `tvm_ffi.dll` of a program that has
 * nothing but `int main(void) { return open_network(); }`; prints why it cannot. */
#define main unused
#include <runner.c>
#undef main

int open_network(void) {
  HMODULE library = LoadLibraryW(L"n\u00ebtz.dll");
  if (library == NULL) fail("cannot load", "the network");
  TVMFFISafeCallType open = (TVMFFISafeCallType)GetProcAddress(library, "__tvm_ffi_tvmconv_network_open");
  TVMFFISafeCallType close = (TVMFFISafeCallType)GetProcAddress(library, "__tvm_ffi_tvmconv_network_close");
  TVMFFIAny result = {0};
  if (open(NULL, NULL, 0, &result) != 0) {
    printf("%s\n", raised);
    return 1;
  }
  TVMFFIAny handle = result;
  return close(NULL, &handle, 1, &result);
}
