"""Kernels and networks for macOS, which are compiled and linked here, and run by nobody: what the files say of themselves."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from models import save
from toys import compile_bundle

from exporting.conftest import SMALL, run
from tvmconv import cli
from tvmconv.errors import InputError
from tvmconv.exporting.exporter import export_c
from tvmconv.lowering.cpu.linker import compile_text
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.selection import obstacle
from tvmconv.signature import parse_signature
from tvmconv.support.toolchain import ZIG, run_compiler, select_symbols
from tvmconv.targets.target import CpuTarget, Target

from .test_onnxruntime_network import network_model

MACOS = "macos:apple-m1"
HALF = "conv2d-n1-i16x9x7-o24x9x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias"
needs_macos = pytest.mark.skipif(
    find_spec(ZIG) is None or not all(map(shutil.which, ("llvm-nm", "llvm-readobj", "llvm-ar"))),
    reason=f"no Python package {ZIG}, or no llvm-nm, llvm-ar and llvm-readobj (Debian, Ubuntu: apt install llvm)",
)
# Names of the system's, as a kernel's library or a network's may want them.
SYSTEM = {
    *(
        "_malloc",
        "_calloc",
        "_free",
        "_posix_memalign",
        "_memcpy",
        "_memset_pattern16",
        "_memset",
        "_memcmp",
        "_bzero",
        "_qsort",
        "_getenv",
        "_strtol",
    ),
    *(
        "_strspn",
        "_strcmp",
        "_strlen",
        "_strncmp",
        "_strstr",
        "_mmap",
        "_munmap",
        "_pread",
        "_open",
        "_close",
        "_fstat",
        "_dladdr",
        "_clock_gettime",
        "_sysconf",
        "_sysctlbyname",
    ),
    *(
        "_sched_yield",
        "_sigfillset",
        "___ulock_wait",
        "___ulock_wake",
        "___error",
        "dyld_stub_binder",
        "__tlv_bootstrap",
    ),
    *("_expf", "_fmaxf", "_fminf", "___extendhfsf2", "___truncsfhf2", "___stack_chk_fail", "___stack_chk_guard"),
}


def check(library: Path) -> None:
    """Check a library's kind, and its imports."""
    header = run("llvm-readobj", "--file-headers", library)
    assert "Arm64" in header and "DynamicLibrary" in header
    names = [line.split()[-1] for line in run("llvm-nm", "-u", library).splitlines()]
    left = [name for name in names if not name.startswith(("_TVMFFI", "_pthread_")) and name not in SYSTEM]
    lines = run("llvm-nm", "-m", "-u", library).splitlines()
    assert [name for name in left if not any(name in line.split() and "weak" in line for line in lines)] == [], lines
    assert "___tvm_ffi_tvmconv_set_threads" in run("llvm-nm", "--defined-only", library)


def names(file: Path, *options: str) -> set[str]:
    """Return names of a file's symbols, as `llvm-nm` lists them."""
    lines = [line.split() for line in run("llvm-nm", *options, file).splitlines()]
    return {words[-1] for words in lines if words and not words[-1].endswith(":")}


def check_library(folder: Path, name: str) -> None:
    """Check a library for C: its visible symbols, its imports, its install name."""
    archive, shared = folder / f"lib{name}.a", folder / f"lib{name}.dylib"
    # Apple's linker reads archives of BSD's kind alone.
    assert b"#1/" in archive.read_bytes()[:16] and b"__.SYMDEF" in archive.read_bytes()[:100]
    defined = names(archive, "--defined-only")
    wanted = {each for each in names(archive, "-u") - defined if not each.startswith("_pthread_")}
    assert wanted <= SYSTEM, wanted - SYSTEM
    visible = names(shared, "--defined-only", "--extern-only") - {"__mh_dylib_header", "___dso_handle"}
    assert visible and all(each.startswith(f"_{name}_") and "_rt_" not in each for each in visible), visible
    assert f"@rpath/lib{name}.dylib" in run("llvm-objdump", "--macho", "--dylib-id", shared)
    used = run("llvm-objdump", "--macho", "--dylibs-used", shared).splitlines()[1:]
    assert len(used) == 2 and "libSystem" in used[1]
    config = (folder / f"{name}Config.cmake").read_text()
    assert f'IMPORTED_SONAME "@rpath/lib{name}.dylib"' in config and "Threads" not in config


@needs_macos
@pytest.mark.slow
def test_kernels_are_linked_and_want_what_there_is(tmp_path: Path) -> None:
    choices = {parse_signature(HALF): "direct", parse_signature(SMALL): "winograd4"}
    path = compile_bundle(tmp_path / "b", choices, MACOS, choices=choices, quick=True)
    bundle = read_bundle(path)
    for entry in bundle.entries:
        check(bundle.library(entry))
    why = obstacle(bundle.targets[MACOS])
    assert why is not None and why.startswith("it is for aarch64 on macOS, and this machine's CPU is ")
    check_library(export_c(path, tmp_path / "two", "two", shared=True, threads="pthreads"), "two")
    with pytest.raises(InputError, match="threads is 'openmp'; allowed for aarch64 on macOS: none, pthreads"):
        export_c(path, tmp_path / "none", threads="openmp")


@needs_macos
@pytest.mark.slow
def test_networks_are_linked_and_want_what_there_is(tmp_path: Path) -> None:
    file = save(network_model(channels=16, size=(20, 24)), tmp_path)
    assert cli.main(["compile", file, "--target", "macos", "-o", str(tmp_path / "net.dylib")]) == 0
    check(tmp_path / "net.dylib")
    assert cli.main(["compile", file, "--format", "c", "--target", "macos", "-o", str(tmp_path / "net")]) == 0
    check_library(tmp_path / "net", "net")


PARTS = (
    """
extern __thread int counted;
int shared_table[] = {1, 2, 3};
static int helper(int at) { return shared_table[at] + counted++; }
int (*choice)(int) = helper;
int other(int);
int first(int at) { return choice(at) + other(at); }
""",
    """
#include <stdlib.h>
__thread int counted = 5;
extern int shared_table[];
static int helper(int at) { return at + atoi("7"); }
int other(int at) { return helper(at) - shared_table[1] - counted; }
""",
)


@needs_macos
def test_objects_made_one_are_the_same_code(tmp_path: Path) -> None:
    """Compare code, because it cannot be run here: one object linked from several, with new names, links to the same code."""
    target = Target.parse("macos")
    assert isinstance(target, CpuTarget)
    for number, text in enumerate(PARTS):
        (tmp_path / f"{number}.o").write_bytes(compile_text(text, "-fvisibility=default", isa=target.isa))
    objects = ("0.o", "1.o")
    run_compiler(("-r", *objects, "-o", "all.o"), tmp_path, target.isa)
    select_symbols("all.o", "one.o", ["fir*"], tmp_path, target.isa, {"first": "fir"})
    code = []
    for name, linked in (("several", objects), ("one", ("one.o",))):
        run_compiler(("-dynamiclib", *linked, "-o", f"{name}.dylib"), tmp_path, target.isa)
        lines = run("llvm-objdump", "-d", "--no-show-raw-insn", tmp_path / f"{name}.dylib").splitlines()
        code.append([line.split("<")[0] for line in lines if line.startswith(" ")])
    assert code[0] == code[1] and len(code[0]) > 20
    assert "_first" in names(tmp_path / "several.dylib", "--extern-only", "--defined-only")
    found = names(tmp_path / "one.dylib", "--extern-only", "--defined-only")
    assert "_fir" in found and not {"_first", "_other", "_choice", "_shared_table", "_counted"} & found
