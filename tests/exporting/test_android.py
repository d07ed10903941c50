"""Libraries for Android, which are compiled and linked here: what the files say of themselves, and archives with another C library under QEMU."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from toys import compile_bundle

from exporting.conftest import HERE, SMALL, STRICT, run
from tvmconv import cli
from tvmconv.errors import InputError, ToolchainError
from tvmconv.exporting.exporter import export_c
from tvmconv.lowering.cpu.linker import compile_text, link_objects
from tvmconv.platforms.android.bionic import NAMES
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.selection import obstacle
from tvmconv.signature import parse_signature
from tvmconv.support.toolchain import ZIG
from tvmconv.targets.target import CpuTarget, Target

HALF = "conv2d-n1-i16x9x7-o24x9x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias"
MACHINES = {"android": ("AArch64", "AARCH64"), "x86_64-android": ("X86-64", "X86_64")}
pytestmark = pytest.mark.skipif(
    find_spec(ZIG) is None or not all(map(shutil.which, ("llvm-readelf", "aarch64-linux-gnu-objcopy"))),
    reason=f"no Python package {ZIG}, no llvm-readelf or no aarch64-linux-gnu-objcopy (apt install llvm binutils-aarch64-linux-gnu)",
)
KNOWN = frozenset().union(*NAMES.values())
machines = pytest.mark.parametrize("name", MACHINES)


def check(library: Path, name: str) -> None:
    """Check the facts that Android's loader checks: kind, pages, tables of names, relocations, and imports."""
    machine, short = MACHINES[name]
    header = run("llvm-readelf", "--file-header", library)
    assert machine in header and "DYN (Shared object file)" in header
    segments = [line.split() for line in run("llvm-readelf", "--program-headers", library).splitlines()]
    assert {each[-1] for each in segments if each[:1] == ["LOAD"]} == {"0x4000"}
    assert not any(each[:1] == ["TLS"] for each in segments), "variables of threads need Android 10"
    assert [each[6] for each in segments if each[:1] == ["GNU_STACK"]] == ["RW"]
    dynamic = run("llvm-readelf", "--dynamic-table", library)
    assert all(f"({each})" in dynamic for each in ("HASH", "GNU_HASH"))
    # Versions of names are glibc's, packed relocations are read by later versions.
    assert not any(f"({each}" in dynamic for each in ("VER", "TEXTREL", "RELR", "ANDROID_REL", "RPATH", "RUNPATH"))
    kinds = {line.split()[2] for line in run("llvm-readelf", "--relocs", library).splitlines() if "R_" in line}
    usual = ("RELATIVE", "GLOB_DAT", "JUMP_SLOT", "JUMP_SLO", "ABS64", "64")
    assert kinds <= {f"R_{short}_{each}" for each in usual}, kinds
    needed = {line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line}
    wanted = strong(library, "-D")
    found = {each for each in NAMES if wanted & NAMES[each]}
    assert wanted <= KNOWN and needed == found, (wanted - KNOWN, needed, found)


def strong(file: Path, *options: str) -> set[str]:
    """Return a file's imports, except weak ones."""
    lines = run("llvm-nm", "--undefined-only", *options, file).splitlines()
    return {line.split()[1] for line in lines if line.split()[:1] == ["U"]}


@pytest.fixture(scope="module")
def library(file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library") / "net"
    assert (
        cli.main(["compile", file, "--math", "strict", "--format", "c", "--target", "android", "-o", str(folder)]) == 0
    )
    return folder


@machines
@pytest.mark.slow
def test_networks_want_what_there_is(name: str, file: str, tmp_path: Path) -> None:
    assert cli.main(["compile", file, "--target", name, "-o", str(tmp_path / "net.so")]) == 0
    check(tmp_path / "net.so", name)


@machines
@pytest.mark.slow
def test_kernels_and_libraries_for_c_want_what_there_is(name: str, tmp_path: Path) -> None:
    choices = {parse_signature(SMALL): "winograd4", parse_signature(HALF): "direct"}
    target = Target.parse(name).name
    bundle = compile_bundle(tmp_path / "b", choices, target, choices=choices, quick=True)
    read = read_bundle(bundle)
    for entry in read.entries:
        check(read.library(entry), name)
    why = obstacle(read.targets[target])
    assert why is not None and why.startswith(f"it is for {MACHINES[name][0].lower()} on Android, and this machine's")
    made = export_c(bundle, tmp_path / "two", "two", shared=True, threads="pthreads")
    check(made / "libtwo.so", name)
    own = set(run("llvm-nm", "--defined-only", made / "libtwo.a").split())
    assert strong(made / "libtwo.a") - own <= KNOWN
    assert "Threads" not in (made / "twoConfig.cmake").read_text()
    with pytest.raises(InputError, match="threads is 'openmp'; allowed for "):
        export_c(bundle, tmp_path / "none", threads="openmp")


@pytest.mark.slow
def test_a_networks_library_for_c_wants_what_there_is(library: Path) -> None:
    check(library / "libnet.so", "android")
    assert strong(library / "libnet.a") <= KNOWN - NAMES["libtvm_ffi.so"]
    visible = run("llvm-nm", "-D", "--defined-only", library / "libnet.so").split()
    assert all(each.startswith("net_") for each in visible[2::3])


def test_what_bionic_lacks_is_not_linked(tmp_path: Path) -> None:
    target = Target.parse("android")
    assert isinstance(target, CpuTarget)
    text = "#include <stdlib.h>\nvoid *__tvm_ffi_f(void) { return aligned_alloc(64, 64); }\n"
    (tmp_path / "f.o").write_bytes(compile_text(text, isa=target.isa))
    with pytest.raises(ToolchainError, match="undefined symbol: aligned_alloc"):
        link_objects(tmp_path, ("f.o",), tmp_path / "f.so", isa=target.isa)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("qemu-aarch64-static") is None, reason="no qemu-aarch64-static")
def test_archives_compute_with_musl_in_the_place_of_bionic(library: Path, tmp_path: Path) -> None:
    """Threads and their variables, too; they are linked statically, as there is no loader for the others."""
    choices = {parse_signature(SMALL): "winograd4"}
    bundle = compile_bundle(tmp_path / "b", choices, "android", choices=choices)
    tested = export_c(bundle, tmp_path / "tested", "tested", threads="pthreads")
    programs = {
        library: [library / "smoke.c", HERE / "network.c"],
        tested: [tested / "smoke.c", HERE / "concurrent.c"],
    }
    compiler = (sys.executable, "-m", ZIG, "cc", "-target", "aarch64-linux-musl", "-static", *STRICT)
    for folder, sources in programs.items():
        for source in sources:
            archive = folder / f"lib{folder.name}.a"
            run(*compiler, f"-I{folder}", source, archive, "-o", tmp_path / "program")
            command = ["qemu-aarch64-static", tmp_path / "program"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
