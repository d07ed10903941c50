"""Functions of Android's libraries that our libraries may use, for stubs: the linker reports all others as undefined.

The functions of Android 7 (API 24), from bionic's symbol lists ``libc/libc.map.txt``, ``libm/libm.map.txt`` and
``libdl/libdl.map.txt`` (github.com/aosp-mirror/platform_bionic, 731631f), without later additions.
"""

from __future__ import annotations

API = 24
_C = """
abort calloc clock_gettime close fclose fgetc fgets fopen free fscanf fstat getauxval getenv getpid madvise malloc memcmp memcpy memmove
memset mmap munmap open posix_memalign prctl pread pthread_atfork pthread_attr_destroy pthread_attr_init pthread_attr_setdetachstate
pthread_attr_setstacksize pthread_cond_broadcast pthread_cond_init pthread_cond_signal pthread_cond_wait pthread_create
pthread_getspecific pthread_key_create pthread_mutex_init pthread_mutex_lock pthread_mutex_trylock pthread_mutex_unlock
pthread_setspecific pthread_sigmask qsort realloc __sched_cpualloc __sched_cpucount __sched_cpufree sched_getaffinity sched_setaffinity sched_yield
sigfillset snprintf sscanf strchr strcmp strcpy strcspn strdup strlen strncmp strrchr strspn strstr strtol strtoll atoll syscall __cxa_finalize __cxa_atexit
"""
_M = """
acosf acoshf asinf asinhf atan2f atanf atanhf cbrtf ceil ceilf cosf coshf erf erfcf erff exp exp2f expf expm1f floor floorf fma fmaf fmax
fmaxf fmin fminf fmod fmodf log log10f log1pf log2f logf nearbyint nearbyintf pow powf remainderf rint rintf round roundf sin sinf sinhf
sqrt sqrtf tan tanf tanh tanhf trunc truncf cos
"""
_DL = "dladdr dlclose dlerror dlopen dlsym"
# Functions of tvm-ffi's library, for programs in Python.
_FFI = """
TVMFFIErrorMoveFromRaised TVMFFIErrorSetRaised TVMFFIErrorSetRaisedFromCStr TVMFFIErrorSetRaisedFromCStrParts TVMFFIFunctionCall
TVMFFIFunctionCreate TVMFFIFunctionGetGlobal TVMFFIFunctionSetGlobal TVMFFIObjectDecRef TVMFFIObjectIncRef
"""
# Libraries, each with its functions.
NAMES = {
    library: frozenset(names.split())
    for library, names in {"libc.so": _C, "libm.so": _M, "libdl.so": _DL, "libtvm_ffi.so": _FFI}.items()
}


def _assembly(names: frozenset[str]) -> str:
    """Return the assembly of a stub library with some functions."""
    return "\n".join([*(f".globl {each}\n.type {each},%function\n{each}:" for each in sorted(names)), ""])


LIBRARIES = {library: _assembly(names) for library, names in NAMES.items()}
