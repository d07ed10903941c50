"""Archives for Microsoft's linker, by LLVM's in its place and a C library that Wine has under the names of Microsoft's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from emulated import WINDOWS_COMPILER, needs_wine
from toys import compile_bundle

from exporting.conftest import SMALL, needs_cmake, run
from tvmconv import cli
from tvmconv.errors import InputError
from tvmconv.exporting.exporter import export_c
from tvmconv.signature import parse_signature

from .test_windows import in_wine, needs_lld

MSVC = "windows-msvc:x86-64-v3"
# Libraries that a program of Microsoft's is linked with, and what of them archives may want: the C library, the system's, the compiler's.
LIBRARIES = {
    "ucrtbase": "_aligned_free _aligned_malloc abort _crt_atexit calloc expf free getenv malloc memcmp memcpy memmove memset"
    " __stdio_common_vsprintf qsort realloc strlen strncmp strspn strstr strtol strcmp",
    "ntdll": "__chkstk",
    "api-ms-win-core-synch-l1-2-0": "WaitOnAddress WakeByAddressSingle",
    "KERNEL32": "AcquireSRWLockExclusive CloseHandle CreateFileA CreateFileMappingW CreateFileW CreateThread ExitProcess FlsAlloc FlsFree"
    " FlsGetValue FlsSetValue GetActiveProcessorCount GetCurrentProcess GetFileSizeEx GetLogicalProcessorInformationEx"
    " GetModuleFileNameW GetModuleHandleExW GetProcessAffinityMask InitializeSRWLock MapViewOfFile QueryPerformanceCounter"
    " QueryPerformanceFrequency ReadFile ReleaseSRWLockExclusive SleepConditionVariableSRW SwitchToThread TryAcquireSRWLockExclusive"
    " UnmapViewOfFile WakeAllConditionVariable WakeConditionVariable InitializeConditionVariable",
}
START = """
__declspec(dllimport) void __stdcall ExitProcess(unsigned);
__declspec(dllimport) void *__stdcall CreateFileA(const char *, unsigned, unsigned, void *, unsigned, unsigned, void *);
__declspec(dllimport) int __stdcall ReadFile(void *, void *, unsigned, unsigned *, void *);
int _fltused;
static int compute(void);
void start(void) { ExitProcess((unsigned)compute()); }
"""
NETWORK = """
#include "net.h"
static unsigned char given[1 << 20], got[net_OUTPUTS][1 << 12];
static int compute(void) {
  net_network *network;
  const void *inputs[net_INPUTS];
  void *outputs[net_OUTPUTS];
  unsigned char *at = given;
  unsigned bytes = 0;
  void *file = CreateFileA("smoke.bin", 0x80000000u, 1, NULL, 3, 0, NULL);
  if (!ReadFile(file, given, sizeof given, &bytes, NULL) || bytes == 0) return 10;
  for (int i = 0; i < net_INPUTS; at += net_inputs[i++].bytes) inputs[i] = at;
  for (int i = 0; i < net_OUTPUTS; ++i) outputs[i] = got[i];
  if (net_open(&network) != net_OK) return 11;
  for (int threads = 1; threads < 5; ++threads) {
    net_call call = {0};
    call.threads = threads;
    if (net_run_with(network, &call, inputs, outputs) != net_OK) return 12;
    unsigned char *right = at;
    for (int i = 0; i < net_OUTPUTS; right += net_outputs[i++].bytes)
      for (size_t k = 0; k < net_outputs[i].bytes; k += 4) {
        float difference = *(float *)(got[i] + k) - *(float *)(right + k);
        if (difference > 1e-3f || difference < -1e-3f) return 20 + i;
      }
  }
  if (net_run(network, NULL, outputs) == net_OK) return 13;
  net_close(network);
  return 0;
}
"""
KERNELS = """
#include "two.h"
static float data[24 * 14 * 14], filter[3 * 3 * 24 * 40], bias[40], output[40 * 14 * 14];
static int compute(void) {
  const two_kernel *kernel = two_find("SIGNATURE");
  const void *inputs[] = {data, filter, bias};
  two_call call = {0};
  if (kernel == NULL || !two_supported()) return 10;
  for (int i = 0; i < 24 * 14 * 14; ++i) data[i] = (float)(i % 24 == 3);
  for (int i = 0; i < 3 * 3 * 24 * 40; ++i) filter[i] = 1;
  for (call.threads = 1; call.threads < 4; ++call.threads) {
    if (kernel->run(&call, inputs, output) != two_OK) return 11;
    if (output[40 * 15] < 8.999f || output[40 * 15] > 9.001f || output[0] > 4.001f) return 12;
  }
  return 0;
}
"""


def linked(source: str, folder: Path, archive: str) -> Path:
    """Return a program of Microsoft's ABI, linked with an archive and what its C library and the system are known to have."""
    (folder / "use.c").write_text(START + source)
    for name, functions in LIBRARIES.items():
        listed = "\n".join(("LIBRARY " + name + ".dll", "EXPORTS", *functions.split()))
        (folder / f"{name}.def").write_text(listed)
        run("llvm-dlltool", "-m", "i386:x86-64", "-d", f"{name}.def", "-l", f"{name}-import.lib", cwd=folder)
    target = ("--target=x86_64-pc-windows-msvc", "-ffreestanding", "-O1", "-mno-stack-arg-probe", "-Wall", "-Werror")
    run("clang", *target, "-c", "use.c", "-o", "use.obj", cwd=folder)
    link = ("/nologo", "/subsystem:console", "/entry:start", "/nodefaultlib", "/alternatename:atexit=_crt_atexit")
    imports = [f"{name}-import.lib" for name in LIBRARIES]
    run("lld-link", *link, "use.obj", archive, *imports, "/out:use.exe", cwd=folder)
    return Path("use.exe")


@pytest.fixture(scope="module")
def library(file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library") / "net"
    assert cli.main(["compile", file, "--math", "strict", "--format", "c", "--target", MSVC, "-o", str(folder)]) == 0
    return folder


@needs_wine
@needs_lld
@pytest.mark.slow
def test_a_networks_archive(library: Path) -> None:
    """Every name that it wants is known: the linker has no other libraries. Its answers are onnxruntime's."""
    assert not [each for each in library.iterdir() if each.suffix in (".dll", ".a", ".def")]
    done = in_wine(linked(NETWORK, library, "net.lib"), cwd=library)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_wine
@needs_lld
@pytest.mark.slow
def test_an_archive_of_kernels(tmp_path: Path) -> None:
    choices = {parse_signature(SMALL): "winograd4"}
    bundle = compile_bundle(tmp_path / "b", choices, MSVC, choices=choices)
    with pytest.raises(
        InputError, match="shared libraries are not supported for x86-64 on Windows by Microsoft's tools"
    ):
        export_c(bundle, tmp_path / "none", shared=True)
    made = export_c(bundle, tmp_path / "two", "two", threads="pthreads")
    done = in_wine(linked(KERNELS.replace("SIGNATURE", SMALL), made, "two.lib"), cwd=made)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_cmake
@pytest.mark.skipif(shutil.which(WINDOWS_COMPILER) is None, reason=f"no {WINDOWS_COMPILER}")
@pytest.mark.slow
def test_cmake_finds_the_archive(library: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(use NONE)\nset(CMAKE_IMPORT_LIBRARY_SUFFIX .lib)\n"
        f'find_package(net CONFIG REQUIRED PATHS "{library}" NO_DEFAULT_PATH)\n'
        "get_target_property(place net::net IMPORTED_LOCATION)\nget_target_property(more net::net INTERFACE_LINK_LIBRARIES)\n"
        'if(NOT EXISTS "${place}" OR NOT more STREQUAL synchronization OR TARGET net::shared)\n'
        '  message(FATAL_ERROR "${place} ${more}")\nendif()\n'
    )
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build")
