/* Permissions that kernels ask the system for before they use a feature, on x86-64. */
#include <stdatomic.h>
#include <tvm/ffi/c_api.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Tasks that use AMX's tiles ask for them first: Linux lets a process use these registers, in all of its threads, once one
 * has asked (Documentation/arch/x86/xstate.rst). Without that the first tile instruction would be a SIGILL. */
#define ASK_PERMISSION 0x1023
#define TILE_DATA 18

int tvmconv_allow_tiles(void) {
  static atomic_int allowed;
  if (atomic_load_explicit(&allowed, memory_order_relaxed)) return 0;
#ifdef __linux__
  if (syscall(SYS_arch_prctl, ASK_PERMISSION, TILE_DATA) == 0) {
    atomic_store_explicit(&allowed, 1, memory_order_relaxed);
    return 0;
  }
#endif
  TVMFFIErrorSetRaisedFromCStr("RuntimeError",
                               "Linux does not let this process use AMX's tiles, which this kernel is made of");
  return -1;
}
