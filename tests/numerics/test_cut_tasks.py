"""Tasks that calls of many threads cut: each piece stores its own outputs, and the bits are those of one thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from toys import compile_bundle, compile_families

import tvmconv
from tvmconv import fills, parse_family
from tvmconv.lowering.compiler import Choice
from tvmconv.lowering.cpu.rewrites.tasks import cuts
from tvmconv.lowering.cpu.rewrites.tasks.cuts import CutAxis
from tvmconv.signature import parse_signature
from tvmconv.support.toolchain import run_compiler

# Winograd by rows, by channels and phases, and of planes; direct by rows, by pixels and tap by tap; few outputs.
SIGNATURES = [
    "conv2d-n1-i64x36x36-o64x36x36-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "backprop2d-n1-i128x8x8-o128x16x16-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i64x36x36-o64x36x36-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32",
    "conv2d-n1-i32x64x64-o64x32x32-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32",
    "conv2d-n1-i512x7x7-o256x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
    "conv2d-n1-i256x21x21-o64x21x21-k3x3-s1x1-d12x12-p12x12_12x12-g1-NXC-XIO-f32",
    "backprop2d-n1-i64x32x32-o3x64x64-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    # Phases that share their threads: Winograd, whose steps wait for each other, and direct.
    "backprop2d-n1-i64x16x16-o64x32x32-k5x5-s2x2-d1x1-p2x2_1x1-g1-NXC-XIO-f32",
    "backprop2d-n1-i128x16x16-o32x32x32-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32",
]
# By rows of outputs, of two and three axes; a stride, planes and groups.
TAP_BY_TAP = [
    "conv2d-n2-i24x9x13-o40x9x13-k3x3-s1x1-d4x5-p4x5_4x5-g1-NCX-OIX-f32-bias-relu",
    "conv2d-n1-i16x17x20-o32x9x10-k3x3-s2x2-d6x7-p6x7_6x7-g2-NXC-XIO-bf16",
    "conv3d-n1-i16x6x7x8-o16x6x7x8-k3x3x3-s1x1x1-d3x3x4-p3x3x4_3x3x4-g1-NXC-XIO-f32",
]
# Phases without taps, which a loop fills before the others: zeros, a bias, and what an epilogue makes of them.
FILLED = {
    "backprop2d-n1-i15x17x17-o15x42x42-k5x5-s2x2-d2x2-p0x0_0x0-g15-NXC-OIX-f32": "grouped",
    "backprop2d-n1-i24x13x13-o32x25x25-k1x1-s2x2-d1x1-p0x0_0x0-g1-NCX-XIO-f32-bias": "planar",
    "backprop1d-n1-i90x9-o56x18-k3-s2-d4-p4_3-g1-NCX-XIO-f16-bias": "direct",
    "backprop2d-n2-i29x9x9-o16x58x6-k2x1-s7x1-d2x1-p2x0_0x3-g1-NXC-XIO-f32-bias-prelu": "direct",
    "backprop3d-n5-i8x8x2x1-o160x24x3x2-k3x1x2-s3x2x1-d1x1x1-p0x0x0_0x0x0-g1-NXC-OIX-bf16-bias": "winograd2",
}


def test_bits_are_those_of_one_thread(tmp_path: Path) -> None:
    problems = [parse_signature(each) for each in SIGNATURES]
    bundle = compile_bundle(tmp_path / "bundle", problems, quick=True)
    generator = np.random.default_rng(66)
    one = tvmconv.load(bundle, threads=1)
    others = [tvmconv.load(bundle, threads=threads) for threads in (9, 33, 200)]
    for problem, signature in zip(problems, SIGNATURES, strict=True):
        data, filters = (
            generator.standard_normal(shape, dtype=np.float32) for shape in (problem.data_shape, problem.filter_shape)
        )
        expected = [one[signature](data, filters), one[signature](data, one[signature].pack(filters))]
        for registry in others:
            kernel = registry[signature]
            for want, given in zip(expected, (filters, kernel.pack(filters)), strict=True):
                out = np.full_like(want, np.nan)
                kernel(data, given, out=out)
                assert np.array_equal(out, want), signature


def test_loops_behind_one_that_fills_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LEAST_STORES", 64)
    choices = {parse_signature(signature): algorithm for signature, algorithm in FILLED.items()}
    bundle = compile_bundle(tmp_path / "bundle", choices, choices=choices, quick=True)
    one, *others = (tvmconv.load(bundle, threads=threads) for threads in (1, 9, 33, 200))
    for problem in choices:
        arrays, _ = fills.exact_case(problem)
        given = arrays.given()
        want = one.lookup(problem)(**given)
        for registry in others:
            out = np.full_like(want, 7)
            registry.lookup(problem)(**given, out=out)
            assert np.array_equal(out, want), problem


def test_blocks_of_images_that_a_loop_fills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LEAST_STORES", 64)
    text = "backprop2d-n?-i8x?x?-o16x?x?-k2x1-s7x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias"
    bundle = compile_families(tmp_path / "bundle", {text: "direct"})
    problem = parse_family(text).problem(1, (9, 58))
    arrays, want = fills.exact_case(problem)
    for threads in (9, 33):
        out = np.full_like(want, 7)
        tvmconv.load(bundle, threads=threads).lookup(problem)(**arrays.given(), out=out)
        assert np.array_equal(out, want)


def test_taps_that_meet_few_rows_of_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "LEAST_STORES", 64)
    problems = [parse_signature(each) for each in TAP_BY_TAP]
    bundle = compile_bundle(tmp_path / "bundle", problems, choice=Choice("kn2row"))
    registries = [tvmconv.load(bundle, threads=threads) for threads in (1, 9, 33, 200)]
    for problem in problems:
        arrays, expected = fills.exact_case(problem)
        for registry in registries:
            out = np.full(problem.output_shape, np.nan, expected.dtype)
            registry.lookup(problem)(**arrays.given(), out=out)
            assert np.array_equal(out, expected), problem


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Return the launcher's functions that decide, as a library."""
    folder = tmp_path_factory.mktemp("launcher")
    native = Path(tvmconv.__file__).parent / "lowering" / "native"
    text = (native / "launcher.c").read_text()
    source = "#include <stdint.h>\nint threads, next_tasks, next_enough;\n"
    source += "static int current_threads(void) { return threads; }\n"
    source += "".join(
        f"{line}\n" for line in text.splitlines() if line.startswith(("#define FEW_", "#define THREADS_"))
    )
    for name in ("threads_for", "cut_tasks"):
        begin = text.index(f"static int {name}")
        source += text[begin + len("static ") : text.index("\n}\n", begin) + 3]
    (folder / "decide.c").write_text(source)
    run_compiler(("-shared", "-fPIC", "decide.c", "-o", "decide.so"), folder)
    found = ctypes.CDLL(str(folder / "decide.so"))
    found.threads_for.argtypes = [ctypes.c_int64, ctypes.c_int, ctypes.c_int]
    return found


@pytest.fixture(scope="module")
def in_c(launcher: ctypes.CDLL) -> Callable[[int, int, CutAxis], int]:
    """Return the launcher's function, of tasks, threads and an axis."""

    def ask(tasks: int, threads: int, axis: CutAxis) -> int:
        ctypes.c_int.in_dll(launcher, "threads").value = threads
        return int(launcher.cut_tasks(tasks, axis.pieces, axis.again, axis.enough))

    return ask


def test_loops_ask_for_threads_that_pay(launcher: ctypes.CDLL) -> None:
    for size, tasks in product((0, 1, 8, 33, 200, 5000), (1, 7, 8, 9, 20, 33, 64, 131, 784)):
        least = None
        for threads in (1, 2, 8, 9, 16, 32, 48, 64, 200):
            asked = launcher.threads_for(size, tasks, threads)
            if threads <= 8:
                assert asked == min(threads, tasks)
                continue
            assert min(8, tasks) <= asked <= min(threads, tasks)
            took = -(-tasks // asked) * 24 * size // tasks + asked
            assert least is None or took <= least + 1, (size, tasks, threads)  # never slower with more threads
            least = took
    assert launcher.threads_for(1, 1000, 64) == 8 and launcher.threads_for(5000, 64, 64) == 64
    assert launcher.threads_for(5000, 65, 64) == 33  # two rounds


def test_the_launcher_cuts_as_the_benchmark_counts(in_c: Callable[[int, int, CutAxis], int]) -> None:
    for tasks, threads, pieces, again, enough in product(
        (1, 7, 8, 16, 131), (1, 8, 9, 16, 64), (2, 7, 49), (0, 3, 40), (4, 60, 9999)
    ):
        axis = CutAxis(pieces, again, enough)
        count = in_c(tasks, threads, axis)
        assert count == axis.cuts(tasks, threads)
        assert 1 <= count <= pieces
        assert count == 1 or tasks * count <= enough
        assert threads > 8 or count == 1
