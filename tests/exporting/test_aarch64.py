"""Libraries for 64-bit ARM, built here and run under QEMU: every kernel, threads, and CPUs that lack features."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulated import COMPILER, N1, V1, emulator_of, needs_emulator
from toys import entry, small_problem, write_bundle

from exporting.conftest import HERE, SMALL, STRICT, compile_spaces, run
from tvmconv import fills
from tvmconv.accuracy import difference
from tvmconv.building.builder import build
from tvmconv.errors import TargetError, ToolchainError
from tvmconv.exporting.archive import check_tools
from tvmconv.exporting.exporter import export_c
from tvmconv.isa import ISAS, native
from tvmconv.problem import Problem
from tvmconv.runtime.bundle import read_bundle
from tvmconv.signature import format_signature, parse_signature
from tvmconv.support import toolchain

POOL = ("-static", "-pthread", "-lm")
N1_CPU = "neoverse-n1"


def cross(source: Path, library: Path, program: Path) -> Path:
    """Return a program for ARM of a C file and a library."""
    archive = library / f"lib{library.name}.a"
    run(COMPILER, *STRICT, source, f"-I{library}", archive, *POOL, "-o", program)
    return program


def emulated(cpu: str, program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program under QEMU as one of its CPUs."""
    emulator = emulator_of(V1)
    assert emulator is not None
    command = [emulator.program, "-cpu", cpu, program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def bf16_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of a kernel in bf16 and one in f32, for an N1 and a V1, and for AVX2."""
    problems = [small_problem("bf16", True, in_channels=64, out_channels=64), parse_signature(SMALL)]
    folder = tmp_path_factory.mktemp("both") / "both.bundle"
    bundle = build(problems, folder, [N1, V1, "x86-64-v3"], jobs=1)
    # What is packed in pairs of 64 bits, too, runs as the manifest describes it.
    assert [
        each.algorithm for each in read_bundle(bundle).entries if each.target == V1 and "bf16" in each.signature
    ] == ["mmla"]
    return bundle


@needs_emulator
@pytest.mark.parametrize("step", [13, pytest.param(5, marks=pytest.mark.slow)])
def test_every_kernel_gives_the_right_bits(step: int, tmp_path: Path) -> None:
    """In all the ways that a library has, with threads and workspaces; in one emulated process.

    But for transforms: without LLVM's optimizations they differ in what becomes a fused multiply-add.
    """
    bundle = compile_spaces(tmp_path / "spaces.bundle", N1, "strict", step=step)
    library = export_c(bundle, tmp_path / "tested", "tested")
    expected: dict[int, tuple[Problem, np.ndarray]] = {}
    for number, signature in enumerate(sorted(each.signature for each in read_bundle(bundle).entries)):
        problem = parse_signature(signature)
        arrays, right = fills.exact_case(problem)
        expected[number] = problem, right
        with (tmp_path / f"{number}.in").open("wb") as file:
            for array in arrays.given().values():
                file.write(array.tobytes() + bytes(-array.nbytes % 64))
    done = emulated(N1_CPU, cross(HERE / "runner.c", library, tmp_path / "runner"), tmp_path)
    assert done.returncode == 0, done.stderr
    for number, (problem, right) in expected.items():
        # With a plain filter, and with a packed one.
        for output in np.fromfile(tmp_path / f"{number}.out", right.dtype).reshape(2, *right.shape):
            wrong = difference(output, right, "exact", problem)
            assert not wrong, f"{format_signature(problem)}: {wrong}"


@needs_emulator
@pytest.mark.parametrize("threads", ["none", "pthreads", "openmp"])
def test_the_test_of_a_library_passes_and_an_n1_takes_its_own_kernels(
    threads: str, bf16_bundle: Path, tmp_path: Path
) -> None:
    library = export_c(bf16_bundle, tmp_path / "net", "net", targets=[N1, V1], threads=threads)
    assert "for aarch64" in (library / "net.h").read_text()
    smoke = tmp_path / "smoke"
    pool = ("-fopenmp",) if threads == "openmp" else ()
    run(COMPILER, *STRICT, library / "smoke.c", library / "libnet.a", *pool, *POOL, "-o", smoke)
    for cpu in (N1_CPU, "max"):
        done = emulated(cpu, smoke)
        assert (done.returncode, done.stdout) == (0, "2 kernels, 0 wrong\n"), done.stderr


@needs_emulator
def test_a_cpu_that_lacks_features_gets_the_code(bf16_bundle: Path, tmp_path: Path) -> None:
    """Kernels for a V1 on an N1: its BFDOT would be SIGILL."""
    library = export_c(bf16_bundle, tmp_path / "tested", "tested", targets=[V1])
    assert emulated(N1_CPU, cross(library / "smoke.c", library, tmp_path / "smoke")).returncode == 77
    assert emulated("max", tmp_path / "smoke").returncode == 0
    (tmp_path / "use.c").write_text(
        '#include "tested.h"\nint main(void) {\n  static char a[1 << 20];\n  const void *in[8] = {a, a, a, a, a, a, a, a};\n'
        "  return tested_supported() == 0 && tested_kernels[0]->run(0, in, a) == tested_ERROR_CPU &&\n"
        "         tested_kernels[0]->pack(a, a) == tested_ERROR_CPU && tested_kernels[0]->packed_bytes() == 0 ? 0 : 1;\n}\n"
    )
    program = cross(tmp_path / "use.c", library, tmp_path / "use")
    assert emulated(N1_CPU, program).returncode == 0
    assert emulated("max", program).returncode == 1


@needs_emulator
def test_shared_libraries_link(bf16_bundle: Path, tmp_path: Path) -> None:
    library = export_c(bf16_bundle, tmp_path / "net", "net", targets=[N1], shared=True, threads="pthreads")
    header = run("aarch64-linux-gnu-readelf", "-hdW", library / "libnet.so")
    assert "AArch64" in header
    needed = {line.rpartition("[")[2].rstrip("]") for line in header.splitlines() if "(NEEDED)" in line}
    assert needed <= {"libc.so.6", "ld-linux-aarch64.so.1"}


def test_two_instruction_sets_are_two_libraries(tmp_path: Path) -> None:
    kernel = format_signature(small_problem())
    targets = {"arm": ("asimd",), "wide": ("avx2", "f16c", "fma")}
    write_bundle(tmp_path / "b", [entry(kernel, name) for name in targets], **targets)
    with pytest.raises(TargetError, match=r"arm \(aarch64\), wide \(x86-64\), and a C library is of one .* --target"):
        export_c(tmp_path / "b", tmp_path / "c")


def test_what_an_export_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = next(isa for isa in ISAS if isa is not native() and isa.cross_compilers)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match=f"no C compiler for {foreign.name}.*apt install gcc-"):
        check_tools(foreign)
    compiler = tmp_path / foreign.cross_compilers[0]
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o700)
    with pytest.raises(ToolchainError, match=f"no objcopy for {foreign.name} on the PATH, {foreign.triple}-objcopy"):
        check_tools(foreign)
