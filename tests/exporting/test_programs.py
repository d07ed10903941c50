"""Programs in C that call exported libraries: compilers, C libraries, sanitizers, threads, hooks, errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from toys import compile_bundle

from exporting.conftest import HERE, SMALL, STRICT, run
from tvmconv.exporting.archive import NATIVE
from tvmconv.exporting.exporter import export_c
from tvmconv.exporting.plan import Plan
from tvmconv.exporting.sources import targets_header
from tvmconv.isa import ISAS, native
from tvmconv.isa.machine import HIDDEN, cpu_features
from tvmconv.lowering.compiler import Choice
from tvmconv.runtime.bundle import BundleTarget, read_bundle, write_manifest
from tvmconv.runtime.selection import obstacle
from tvmconv.signature import parse_signature


@pytest.fixture(scope="module")
def libraries(few_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return the export of the bundle as `tested`, once for all tests with the same arguments."""
    made: dict[tuple[object, ...], Path] = {}

    def library(threads: str = "none", *flags: str, shared: bool = False) -> Path:
        key = (threads, flags, shared)
        if key not in made:
            folder = tmp_path_factory.mktemp("library") / "tested"
            made[key] = export_c(few_bundle, folder, "tested", threads=threads, flags=flags, shared=shared)
        return made[key]

    return library


def compiled(source: str, library: Path, folder: Path, *flags: str, compiler: str = "gcc") -> Path:
    """Return a program of a C file and a library."""
    program = folder / Path(source).stem
    run(compiler, *STRICT, *flags, HERE / source, f"-I{library}", library / "libtested.a", "-pthread", "-o", program)
    return program


@pytest.mark.parametrize(
    "threads", ["none", "pthreads"]
)  # GNU OpenMP hangs in a child that was forked after its threads began
def test_bad_arguments_and_failing_hooks_have_their_codes(
    threads: str, libraries: Callable[..., Path], tmp_path: Path
) -> None:
    run(compiled("api.c", libraries(threads), tmp_path), SMALL)


@pytest.mark.parametrize("threads", ["none", "pthreads", "openmp"])
def test_eight_threads_at_once_get_the_bits_of_one(
    threads: str, libraries: Callable[..., Path], tmp_path: Path
) -> None:
    run(compiled("concurrent.c", libraries(threads), tmp_path, *(("-fopenmp",) if threads == "openmp" else ())))


def test_archives_have_as_many_threads_as_python(libraries: Callable[..., Path], tmp_path: Path) -> None:
    source = tmp_path / "count.c"
    source.write_text(
        "#include <stdio.h>\nint tested_rt_pool_threads(void);\n"
        'int main(void) { printf("%d", tested_rt_pool_threads()); return 0; }\n'
    )
    program = tmp_path / "count"
    run("gcc", source, libraries("pthreads") / "libtested.a", "-pthread", "-o", program)
    for environment in ({}, {"OMP_NUM_THREADS": "1"}):
        python = [
            sys.executable,
            "-c",
            "from tvmconv.runtime.processors import kernel_threads; print(kernel_threads(), end='')",
        ]
        found = [
            subprocess.run(each, env=os.environ | environment, capture_output=True, text=True, check=True).stdout
            for each in ([program], python)
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
@pytest.mark.parametrize("program", ["concurrent.c", "api.c"])
def test_sanitizers_find_nothing(sanitizer: str, program: str, libraries: Callable[..., Path], tmp_path: Path) -> None:
    flags = (f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-g", "-O1")
    library = libraries("pthreads", *flags)
    arguments = [SMALL] if program == "api.c" else []
    # ThreadSanitizer cannot follow the fork of a process with threads.
    run(compiled(program, library, tmp_path, *flags), *arguments, TSAN_OPTIONS="die_after_fork=0")


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [
        ("gcc", ("-static",)),
        ("gcc", ("-static-pie",)),
        ("gcc", ("-O2", "-flto")),
        ("clang", ()),
        ("musl-gcc", ("-static",)),
    ],
)
def test_other_compilers_and_libraries(
    compiler: str, flags: tuple[str, ...], libraries: Callable[..., Path], tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    run(compiled("api.c", libraries("pthreads"), tmp_path, *flags, compiler=compiler), SMALL)
    run(compiled("concurrent.c", libraries("pthreads"), tmp_path, *flags, compiler=compiler))


@pytest.mark.parametrize(
    "command",
    [
        ("gcc", "-std=c99"), ("gcc", "-std=c11"), ("g++", "-std=c++11", "-x", "c++"), ("g++", "-std=c++17", "-x", "c++"),
        ("clang", "-std=c99"), ("clang++", "-std=c++17", "-x", "c++"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_header_has_no_warnings(command: tuple[str, ...], libraries: Callable[..., Path], tmp_path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    (tmp_path / "use.c").write_text(
        '#include "tested.h"\n#include "tested.h"\nint main(void) { return tested_supported() ? 0 : 1; }\n'
    )
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Wundef", "-Werror", "-pedantic")
    run(*command, *warnings, "-fsyntax-only", f"-I{libraries()}", tmp_path / "use.c")


def test_two_libraries_in_one_program(few_bundle: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        export_c(few_bundle, tmp_path / name, name)
    includes = [f"-I{tmp_path / name}" for name in ("one", "other")]
    archives = [tmp_path / name / f"lib{name}.a" for name in ("one", "other")]
    run("gcc", *STRICT, HERE / "two.c", *includes, *archives, "-o", tmp_path / "two")
    run(tmp_path / "two")


def test_a_cpu_that_lacks_features_gets_the_code(few_bundle: Path, tmp_path: Path) -> None:
    lacking = sorted((native() or ISAS[0]).c_features.keys() - cpu_features())
    if not lacking:
        pytest.skip("this CPU has every feature that a target can need")
    copy = tmp_path / "few.bundle"
    shutil.copytree(few_bundle, copy)
    bundle = read_bundle(copy)
    (name,) = bundle.targets
    other = BundleTarget("cpu", (*bundle.targets[name].features, lacking[0]))
    write_manifest(replace(bundle, targets={name: other}))
    library = export_c(copy, tmp_path / "tested", "tested")
    (tmp_path / "use.c").write_text(
        '#include "tested.h"\nint main(void) {\n  char a[64] = {0};\n  const void *in[8] = {a, a, a, a, a, a, a, a};\n'
        "  return tested_supported() == 0 && tested_kernels[0]->run(0, in, a) == tested_ERROR_CPU &&\n"
        "         tested_kernels[0]->pack(a, a) == tested_ERROR_CPU && tested_kernels[0]->packed_bytes() == 0 ? 0 : 1;\n}\n"
    )
    run("gcc", *STRICT, tmp_path / "use.c", f"-I{library}", library / "libtested.a", "-o", tmp_path / "use")
    run(tmp_path / "use")
    # With a variant that this CPU runs beside it, that is taken.
    entries = [replace(each, target="other") for each in bundle.entries]
    both = replace(bundle, targets={**bundle.targets, "other": other}, entries=(*bundle.entries, *entries))
    write_manifest(both)
    run(compiled("api.c", export_c(copy, tmp_path / "tested", "tested"), tmp_path), SMALL)


def test_another_cpus_library_links_and_says_that_it_does_not_run(tmp_path: Path) -> None:
    """One with tiles: its kernels ask the system for them."""
    problem = parse_signature("conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16")
    bundle = compile_bundle(tmp_path / "tiles.bundle", [problem], "sapphirerapids", Choice("amx"), quick=True)
    library = export_c(bundle, tmp_path / "tiles", "tiles")
    run("gcc", *STRICT, library / "smoke.c", library / "libtiles.a", "-lm", "-o", tmp_path / "smoke")
    runs = obstacle(read_bundle(bundle).targets["sapphirerapids"]) is None
    assert subprocess.run([tmp_path / "smoke"], capture_output=True, check=False).returncode == (0 if runs else 77)


@pytest.mark.parametrize("hidden", ["", "pni fma sse4 sse4_1 asimd"])
def test_features_are_found_as_linux_finds_them(
    hidden: str, few_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isa = native() or ISAS[0]
    there = cpu_features() - set(hidden.split())
    monkeypatch.setenv(HIDDEN, " ".join({*os.environ.get(HIDDEN, "").split(), *hidden.split()}))
    library = export_c(few_bundle, tmp_path / "library", "tested")
    # Bits of 32 targets are all that there are.
    for names in (sorted(isa.c_features)[::2], sorted(isa.c_features)[1::2]):
        bundle = replace(read_bundle(few_bundle), targets={name: BundleTarget("cpu", (name,)) for name in names})
        for source in ("tvmconv-runtime.h", "tvmconv-detect.h", "runtime.c", f"{isa.c_file}.c", "pool_none.c"):
            (tmp_path / source).write_text((NATIVE / source).read_text().replace("tvmconv_name", "tested"))
        (tmp_path / "tvmconv-targets.h").write_text(
            targets_header(Plan("tested", bundle, tuple(names), isa, (), ())).replace("NAME_", "tested_")
        )
        shutil.copy(library / "tested.h", tmp_path)
        (tmp_path / "main.c").write_text(
            '#include <stdio.h>\n#include "tvmconv-runtime.h"\nint main(void) { return printf("%u\\n", tested_rt_detect()) < 0; }\n'
        )
        sources = [tmp_path / name for name in ("main.c", "runtime.c", f"{isa.c_file}.c", "pool_none.c")]
        run("gcc", "-std=gnu11", *sources, "-o", tmp_path / "main")
        bits = int(run(tmp_path / "main"))
        assert {name for number, name in enumerate(names) if bits >> number & 1} == cpu_features() & set(names)
    assert cpu_features() == there


def test_symbols_are_the_librarys_own(libraries: Callable[..., Path]) -> None:
    library = libraries("none", shared=True)
    lines = run("nm", "--extern-only", "--defined-only", library / "libtested.a").splitlines()
    symbols = [line.split()[-1] for line in lines if len(line.split()) == 3]
    assert symbols and all(symbol.startswith("tested_") for symbol in symbols)
    hidden = run("readelf", "-Ws", library / "libtested.a")
    assert not [
        line for line in hidden.splitlines() if "GLOBAL DEFAULT" in line and " tested_" in line and " UND " not in line
    ]
    needed = run("readelf", "-Wd", library / "libtested.so")
    libraries_needed = [line.split("[")[1][:-1] for line in needed.splitlines() if "(NEEDED)" in line]
    assert set(libraries_needed) <= {"libc.so.6", "ld-linux-x86-64.so.2"}  # the loader: variables of threads
    dynamic = run("nm", "--dynamic", "--defined-only", library / "libtested.so")
    exported = {line.split()[-1] for line in dynamic.splitlines()}
    assert {"tested_supported", "tested_find", "tested_kernels", "tested_set_parallel_for"} <= exported
    assert not [symbol for symbol in exported if "_rt_" in symbol]


def test_the_shared_library_is_found_at_run_time(libraries: Callable[..., Path], tmp_path: Path) -> None:
    library = libraries("pthreads", shared=True)
    run(
        "gcc",
        *STRICT,
        HERE / "api.c",
        f"-I{library}",
        f"-L{library}",
        "-ltested",
        f"-Wl,-rpath,{library}",
        "-o",
        tmp_path / "api",
    )
    assert "libtested.so" in run("readelf", "-d", tmp_path / "api")
    run(tmp_path / "api", SMALL)
