"""Kernels and networks for macOS, which are compiled and linked here, and run by nobody: what the files say of themselves."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from models import save
from toys import compile_bundle

from exporting.conftest import run
from tvmconv import cli
from tvmconv.errors import TargetError
from tvmconv.exporting.exporter import export_c
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.selection import obstacle
from tvmconv.signature import parse_signature
from tvmconv.support.toolchain import ZIG

from .test_onnxruntime_network import network_model

MACOS = "macos:apple-m1"
HALF = "conv2d-n1-i16x9x7-o24x9x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias"
needs_macos = pytest.mark.skipif(
    find_spec(ZIG) is None or not all(map(shutil.which, ("llvm-nm", "llvm-readobj"))),
    reason=f"no Python package {ZIG}, or no llvm-nm and llvm-readobj (Debian, Ubuntu: apt install llvm)",
)
# Names of the system's, as a kernel's library or a network's may want them.
SYSTEM = {
    *(
        "_malloc",
        "_calloc",
        "_free",
        "_posix_memalign",
        "_memcpy",
        "_memset",
        "_memcmp",
        "_bzero",
        "_qsort",
        "_getenv",
        "_strtol",
    ),
    *(
        "_strspn",
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
    """Check a library's kind, and what it wants of others."""
    header = run("llvm-readobj", "--file-headers", library)
    assert "Arm64" in header and "DynamicLibrary" in header
    names = [line.split()[-1] for line in run("llvm-nm", "-u", library).splitlines()]
    left = [name for name in names if not name.startswith(("_TVMFFI", "_pthread_")) and name not in SYSTEM]
    lines = run("llvm-nm", "-m", "-u", library).splitlines()
    assert [name for name in left if not any(name in line.split() and "weak" in line for line in lines)] == [], lines
    assert "___tvm_ffi_tvmconv_set_threads" in run("llvm-nm", "--defined-only", library)


@needs_macos
@pytest.mark.slow
def test_kernels_are_linked_and_want_what_there_is(tmp_path: Path) -> None:
    problem = parse_signature(HALF)
    bundle = read_bundle(compile_bundle(tmp_path / "b", [problem], MACOS, choices={problem: "direct"}, quick=True))
    (entry,) = bundle.entries
    check(bundle.library(entry))
    why = obstacle(bundle.targets[MACOS])
    assert why is not None and why.startswith("it is for aarch64 on macOS, and this machine's CPU is ")
    with pytest.raises(TargetError, match="there are no libraries for C for aarch64 on macOS"):
        export_c(tmp_path / "b", tmp_path / "c")


@needs_macos
@pytest.mark.slow
def test_networks_are_linked_and_want_what_there_is(tmp_path: Path) -> None:
    file = save(network_model(channels=16, size=(20, 24)), tmp_path)
    assert cli.main(["compile", file, "--target", "macos", "-o", str(tmp_path / "net.dylib")]) == 0
    check(tmp_path / "net.dylib")
