"""Libraries for Windows, built here and run under Wine: kernels, networks, threads, damage; and programs of other tools that link them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulated import WINDOWS, WINDOWS_COMPILER, needs_wine
from toys import compile_bundle

from exporting.conftest import HERE, SMALL, STRICT, compile_spaces, run
from tvmconv import cli, fills
from tvmconv.accuracy import difference
from tvmconv.building.builder import build
from tvmconv.errors import InputError, TargetError
from tvmconv.exporting.exporter import export_c
from tvmconv.exporting.provider_library import export_provider
from tvmconv.runtime import emulation
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.selection import obstacle
from tvmconv.signature import format_signature, parse_signature
from tvmconv.support.toolchain import ffi_includes

PROGRAM = (*STRICT, "-D__USE_MINGW_ANSI_STDIO=1", "-pthread", "-static")
POOL = "-lsynchronization"
HALF = "conv2d-n1-i16x9x7-o24x9x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f16-bias"


def in_wine(program: Path, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program under Wine."""
    command = ["env", "WINEDEBUG=-all", "wine", program, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)


def program(source: Path, library: Path, *more: object) -> Path:
    """Return a program for Windows of a C file and what it is linked with, in the library's folder."""
    made = library / f"{source.stem}.exe"
    run(WINDOWS_COMPILER, *PROGRAM, source, f"-I{library}", *more, POOL, "-o", made)
    return made


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of a kernel that packs its filter and one in f16."""
    problems = {parse_signature(SMALL): "winograd4", parse_signature(HALF): "direct"}
    folder = tmp_path_factory.mktemp("windows") / "two.bundle"
    return compile_bundle(folder, problems, WINDOWS, choices=problems, quick=True)


@pytest.fixture(scope="module")
def library(file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library") / "net"
    assert cli.main(["compile", file, "--math", "strict", "--format", "c", "--target", WINDOWS, "-o", str(folder)]) == 0
    return folder


@needs_wine
@pytest.mark.slow
def test_kernels_are_tried_under_wine(tmp_path: Path) -> None:
    build([parse_signature(SMALL), parse_signature(HALF)], tmp_path / "b", ["windows"], jobs=1)
    read = read_bundle(tmp_path / "b")
    assert {each.verified for each in read.entries} == {"emulated"}
    assert all(each.file.endswith(".dll") for each in read.entries)
    # A kernel that is wrong, or reads beyond its arrays, does not pass.
    assert cli.main(["verify", str(tmp_path / "b")]) == 0


@needs_wine
@pytest.mark.parametrize("threads", [pytest.param("none", marks=pytest.mark.slow), "pthreads"])
def test_a_bundle_through_c(threads: str, bundle: Path, tmp_path: Path) -> None:
    library = export_c(bundle, tmp_path / "tested", "tested", shared=True, threads=threads)
    for source, linked in ((library / "smoke.c", "libtested.a"), (HERE / "concurrent.c", "libtested.dll.a")):
        done = in_wine(program(source, library, library / linked))
        assert done.returncode == 0, done.stdout + done.stderr
    header = (library / "tested.h").read_text()
    assert not re.search(r"unistd|pthread|sys/|__attribute__", header)
    assert "tested_kernels" in (library / "tested.def").read_text()


@needs_wine
@pytest.mark.slow
def test_every_kernel_gives_the_right_bits(tmp_path: Path) -> None:
    """In all the ways that a library has, with threads and workspaces."""
    library = export_c(compile_spaces(tmp_path / "spaces.bundle", WINDOWS, "strict"), tmp_path / "tested", "tested")
    expected = {}
    signatures = sorted(each.signature for each in read_bundle(tmp_path / "spaces.bundle").entries)
    for number, problem in enumerate(map(parse_signature, signatures)):
        arrays, right = fills.exact_case(problem)
        expected[number] = problem, right
        with (tmp_path / f"{number}.in").open("wb") as inputs:
            for array in arrays.given().values():
                inputs.write(array.tobytes() + bytes(-array.nbytes % 64))
    done = in_wine(program(HERE / "runner.c", library, library / "libtested.a"), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for number, (problem, right) in expected.items():
        for output in np.fromfile(tmp_path / f"{number}.out", right.dtype).reshape(2, *right.shape):
            wrong = difference(output, right, "exact", problem)
            assert not wrong, f"{format_signature(problem)}: {wrong}"


@needs_wine
@pytest.mark.parametrize("linked", ["libnet.a", "libnet.dll.a"])
def test_all_calls_of_a_network(linked: str, library: Path) -> None:
    for source in (HERE / "network.c", library / "smoke.c"):
        done = in_wine(program(source, library, library / linked), cwd=library)
        assert done.returncode == 0, done.stdout + done.stderr


MICROSOFT = """
#include "net.h"
__declspec(dllimport) void __stdcall ExitProcess(unsigned);
int _fltused;
static float x[1 << 16], z[1], y[10];
static int64_t indices[2];
void start(void) {
  net_network *network;
  const void *inputs[net_INPUTS];
  void *outputs[net_OUTPUTS];
  for (int i = 0; i < net_INPUTS; ++i) inputs[i] = net_inputs[i].elements == 1 ? z : x;
  for (int i = 0; i < net_OUTPUTS; ++i) outputs[i] = net_outputs[i].elements == 2 ? (void *)indices : y;
  int status = net_open(&network);
  if (status == net_OK) status = net_run(network, inputs, outputs);
  ExitProcess(status == net_OK && net_inputs[0].elements > 1000 ? 0 : 1 + status);
}
"""
needs_lld = pytest.mark.skipif(
    not all(map(shutil.which, ("clang", "lld-link", "llvm-dlltool"))), reason="no clang, lld-link or llvm-dlltool"
)


@needs_wine
@needs_lld
def test_microsofts_objects_link_the_library(library: Path, tmp_path: Path) -> None:
    """As LLVM writes and links them; their C library is not to be had here, so the program has none."""
    (tmp_path / "use.c").write_text(MICROSOFT)
    (tmp_path / "kernel32.def").write_text("LIBRARY KERNEL32.dll\nEXPORTS\nExitProcess\n")
    (tmp_path / "net.def").write_text("LIBRARY net.dll\n" + (library / "net.def").read_text())
    for name in ("net", "kernel32"):
        run("llvm-dlltool", "-m", "i386:x86-64", "-d", f"{name}.def", "-l", f"{name}.lib", cwd=tmp_path)
    target = ("--target=x86_64-pc-windows-msvc", "-ffreestanding", "-Dnet_DLL", "-Wall", "-Werror")
    run("clang", *target, f"-I{library}", "-c", "use.c", "-o", "use.obj", cwd=tmp_path)
    link = ("/nologo", "/subsystem:console", "/entry:start", "/nodefaultlib", "use.obj", "net.lib", "kernel32.lib")
    run("lld-link", *link, f"/out:{library / 'use.exe'}", cwd=tmp_path)
    assert in_wine(Path("use.exe"), cwd=library).returncode == 0


BITS = """
#include <stdio.h>
#include "net.h"
#include <stdlib.h>

int main(int count, char **words) {
  FILE *file = fopen("smoke.bin", "rb");
  net_network *network;
  const void *inputs[net_INPUTS];
  void *outputs[net_OUTPUTS];
  net_call call = {0};
  call.threads = count > 1 ? atoi(words[1]) : 1;
  for (int i = 0; i < net_INPUTS; ++i) {
    void *read = malloc(net_inputs[i].bytes);
    if (fread(read, 1, net_inputs[i].bytes, file) != net_inputs[i].bytes) return 2;
    inputs[i] = read;
  }
  for (int i = 0; i < net_OUTPUTS; ++i) outputs[i] = malloc(net_outputs[i].bytes);
  if (net_open(&network) != net_OK || net_run_with(network, &call, inputs, outputs) != net_OK) return 3;
  for (int i = 0; i < net_OUTPUTS; ++i)
    for (size_t k = 0; k < net_outputs[i].bytes; ++k) printf("%02x", ((unsigned char *)outputs[i])[k]);
  net_close(network);
  return 0;
}
"""


@needs_wine
@pytest.mark.slow
@pytest.mark.parametrize("math", ["default", "strict"])
def test_bits_are_those_of_linux(math: str, file: str, tmp_path: Path) -> None:
    (tmp_path / "bits.c").write_text(BITS)
    command = ["compile", file, "--math", math, "--format", "c", "--name", "net"]
    for name, target in (("windows", WINDOWS), ("linux", "x86-64-v3")):
        assert cli.main([*command, "--target", target, "-o", str(tmp_path / name)]) == 0
    linux, windows = tmp_path / "linux", tmp_path / "windows"
    run("cc", tmp_path / "bits.c", f"-I{linux}", linux / "libnet.a", "-lm", "-pthread", "-o", linux / "bits")
    right = run(linux / "bits", cwd=linux)
    made = program(tmp_path / "bits.c", windows, windows / "libnet.a")
    for threads in (1, 2, 5):
        assert in_wine(made, threads, cwd=windows).stdout == right


@pytest.fixture(scope="module")
def network(file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a network's file for Python."""
    path = tmp_path_factory.mktemp("python") / "net.dll"
    assert cli.main(["compile", file, "--math", "strict", "--target", WINDOWS, "-o", str(path)]) == 0
    return path


@needs_wine
@pytest.mark.slow
def test_a_file_that_is_cut_off(network: Path, tmp_path: Path) -> None:
    """It opens under a name of other letters, in a long path; what is cut says the same as under Linux."""
    folder = tmp_path / ("deep" * 30) / ("below" * 30)
    folder.mkdir(parents=True)
    flags = ("-std=gnu11", "-Wno-attributes", *ffi_includes(), f"-I{Path(emulation.__file__).parent}")
    run(WINDOWS_COMPILER, *flags, "-shared", HERE / "windows_network.c", "-o", folder / "tvm_ffi.dll")
    (folder / "main.c").write_text("int open_network(void);\nint main(void) { return open_network(); }\n")
    run(WINDOWS_COMPILER, "main.c", "tvm_ffi.dll", "-o", "main.exe", cwd=folder)
    whole = network.read_bytes()
    for content, said in (
        (whole, ""),
        (whole[:-100], "RuntimeError: the network's file is cut off: its weights are missing\n"),
    ):
        (folder / "nëtz.dll").write_bytes(content)
        done = in_wine(Path("main.exe"), cwd=folder)
        assert (done.returncode, done.stdout) == (bool(said), said), done.stderr


@needs_wine
def test_what_is_for_linux_alone_says_so(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(
        TargetError, match="providers for onnxruntime are for Linux, and windows:x86-64-v3 is for x86-64 on W"
    ):
        export_provider(bundle, tmp_path / "provider.so")
    with pytest.raises(InputError, match="threads is 'openmp'; allowed for x86-64 on Windows: none, pthreads"):
        export_c(bundle, tmp_path / "library", threads="openmp")
    why = obstacle(read_bundle(bundle).targets[WINDOWS])
    assert why is not None and why.startswith("it is for x86-64 on Windows, and this machine's CPU is ")
