"""Reproducible kernels: one order of each sum, and so the same bits by any CPU's vectors, any schedule, plain and prepacked.

`GOLDEN` has the digests of answers on x86-64-v3; each CPU that runs the suite compares with them, and ARM under QEMU does. What is planned
for AVX-512 and for ARM is compiled for this machine, too: the loops are theirs, by this machine's instructions.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi
from campaign.build import Kernel, compile_all, lowered
from emulated import N1, V1, cpu_of, emulator_of, needs_emulator
from emulated_kernels import SECONDS, entry_points, plain
from test_compiler import SPACES

import tvmconv
from tvmconv import fills
from tvmconv.algorithms import table as algorithms
from tvmconv.epilogue import SHORT, STEPS
from tvmconv.errors import TvmconvError
from tvmconv.lowering.compiler import Choice, default_choice, samples, sketches_of
from tvmconv.problem import Problem
from tvmconv.runtime.bundle import ORDERED, read_bundle
from tvmconv.runtime.emulation import EmulatedCall
from tvmconv.runtime.verify import verify
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import CpuTarget, Target

GOLDEN = Path(__file__).parents[1] / "golden/reproducible.txt"
HOST = cpu_of("host")
# Vectors of 8, 16 and 4 lanes, 16 and 32 registers, dot products and tiles, caches of all sizes.
PLANNED = ("x86-64-v3", "sapphirerapids", V1, "cortex-a53")
STEP = "conv1d-n1-i8x30-o12x30-k3-s1-d1-p1_1-g1-NXC-XIO-{}-bias-{}"
# What follows a step adds to it: a product that it ends with is no part of that sum. Of 16 bits those that are shorter if they are last.
OF_STEPS = [
    parse_signature(STEP.format(dtype, "_".join([name, *("0.25", "0.5")[: len(numbers)]]) + "-add" * (dtype == "f32")))
    for name, numbers in STEPS.items()
    for dtype in ("f32", *(("bf16", "f16") if name in SHORT else ()))
    if name != "add"
]
PROBLEMS = [*map(parse_signature, SPACES[::4]), *OF_STEPS]


@dataclass(frozen=True)
class Tried:
    """A schedule that is made for a CPU, of a kernel for plain filters, or prepacked ones."""

    problem: Problem
    planned: CpuTarget
    choice: Choice
    packed: bool


def answers(tried: Sequence[Tried], target: CpuTarget, folder: Path, quick: bool = True) -> Iterator[tuple[Tried, str]]:
    """Yield digests of answers of kernels that are compiled for `target`, in one library: each by plain filters, then by packed ones."""
    functions = [lowered(each.problem, each.planned, each.choice, entry_points(each.packed)) for each in tried]
    kernels = compile_all(functions, target, str(folder / f"kernels-{target.name}.so"), quick, keep_zeros=True)
    outputs: list[tuple[Tried, np.ndarray]] = []
    calls: list[EmulatedCall] = []
    for each, kernel in zip(tried, kernels, strict=True):
        assert isinstance(kernel, Kernel), f"{each}: {kernel}"
        for packed in [False] * kernel.plain + [True] * (kernel.packed is not None):
            data, filter_, *others = map(plain, fills.fixed_fill(each.problem).given().values())
            output = fills.blank_output(each.problem)
            if packed:
                assert kernel.packed is not None
                memory = np.zeros(*kernel.packed)
                calls.append((f"tvmconv_pack{kernel.ending}", (filter_, memory)))
                filter_ = memory
            name = "tvmconv_packed" if packed else "tvmconv_kernel"
            calls.append((name + kernel.ending, (data, filter_, *others, plain(output))))
            outputs.append((each, output))
    if emulator := emulator_of(target.name):
        emulator.run(folder / f"kernels-{target.name}.so", calls, SECONDS)
    else:
        module = tvm_ffi.load_module(str(folder / f"kernels-{target.name}.so"))
        for name, arrays in calls:
            module[name](*map(tvm_ffi.from_dlpack, arrays))
    for each, output in outputs:
        yield each, hashlib.sha256(output.tobytes()).hexdigest()[:16]


def ways(problem: Problem, targets: Sequence[str], every: bool) -> Iterator[Tried]:
    """Yield schedules of each algorithm: the default for plain filters, and one that is drawn for packed ones; or the other way round, too."""
    draw = random.Random(format_signature(problem))
    for target in map(cpu_of, targets):
        for algorithm in algorithms.applicable(problem, target, "reproducible"):
            for packed in (False, True):
                if every or not packed:
                    yield Tried(problem, target, Choice(algorithm.name), packed)
                if every or packed:
                    sketches = sketches_of(algorithm.name, problem, target, entry_points(packed))[1]
                    number = draw.randrange(len(sketches))
                    decisions = tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketches[number]))
                    yield Tried(problem, target, Choice(algorithm.name, number, decisions), packed)


def assert_one_answer(tried: Sequence[Tried], folder: Path) -> None:
    found: dict[str, dict[str, Tried]] = {}
    for each, digest in answers(tried, HOST, folder):
        found.setdefault(format_signature(each.problem), {}).setdefault(digest, each)
    for signature, digests in found.items():
        assert len(digests) == 1, f"{signature}: {digests}"


def default_ways(problems: Sequence[Problem], target: CpuTarget) -> list[Tried]:
    choices = [(each, default_choice(each, target, "reproducible")) for each in problems]
    return [Tried(each, target, choice, number % 2 == 1) for number, (each, choice) in enumerate(choices)]


def compare_with_golden(target: CpuTarget, folder: Path, quick: bool = True) -> None:
    known = dict(line.split() for line in GOLDEN.read_text().splitlines())
    tried = default_ways(PROBLEMS[::4] if quick else PROBLEMS, target)
    found = [(format_signature(each.problem), digest) for each, digest in answers(tried, target, folder, quick)]
    assert [(signature, digest) for signature, digest in found if known[signature] != digest] == []
    assert quick or {signature for signature, _ in found} == known.keys()


def test_answers_are_golden(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if request.config.getoption("--update-golden"):
        tried = answers(default_ways(PROBLEMS, HOST), HOST, tmp_path)
        lines = {f"{format_signature(each.problem)} {digest}" for each, digest in tried}
        GOLDEN.write_text("".join(f"{line}\n" for line in sorted(lines)))
    compare_with_golden(HOST, tmp_path)


@pytest.mark.slow
def test_optimized_answers_are_golden(tmp_path: Path) -> None:
    compare_with_golden(HOST, tmp_path, quick=False)


@needs_emulator
@pytest.mark.parametrize(
    ("target", "quick"),
    [(N1, True), *(pytest.param(each, False, marks=pytest.mark.slow) for each in (N1, V1, "cortex-a53"))],
)
def test_answers_of_arm_are_golden(target: str, quick: bool, tmp_path: Path) -> None:
    compare_with_golden(cpu_of(target), tmp_path, quick)


@pytest.mark.parametrize("first", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in range(0, len(SPACES), 8))])
def test_every_schedule_of_every_cpu_has_one_answer(first: int, tmp_path: Path) -> None:
    chosen = SPACES[first :: len(SPACES) // 3] if first == 5 else SPACES[first : first + 8]
    targets = PLANNED[1:3] if first == 5 else PLANNED
    tried = [way for each in map(parse_signature, chosen) for way in ways(each, targets, every=first != 5)]
    assert_one_answer(tried, tmp_path)


def test_sums_take_taps_and_then_channels_by_fused_multiply_adds(tmp_path: Path) -> None:
    fma = ctypes.CDLL("libm.so.6").fmaf
    fma.restype, fma.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    problem = parse_signature("conv2d-n1-i5x4x6-o8x4x6-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    arrays = fills.fixed_fill(problem)
    expected = np.zeros(problem.output_shape, np.float32)
    for y, x, o in np.ndindex(expected.shape[1:]):
        total = 0.0
        for ky, kx, c in np.ndindex(3, 3, 5):
            at = y + ky - 1, x + kx - 1
            if 0 <= at[0] < 4 and 0 <= at[1] < 6:
                total = fma(arrays.data[(0, *at, c)], arrays.filter[ky, kx, c, o], total)
        expected[0, y, x, o] = total
    digest = hashlib.sha256(expected.tobytes()).hexdigest()[:16]
    tried = list(ways(problem, ["host"], every=False))
    assert {found for _, found in answers(tried, HOST, tmp_path)} == {digest}


def test_a_manifest_has_the_digest_of_the_answer_and_verify_compares_it(tmp_path: Path) -> None:
    problem = parse_signature("conv2d-n1-i8x9x9-o8x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias-relu")
    path = tvmconv.build([problem], tmp_path / "b", ["host"], math="reproducible", jobs=1)
    (entry,) = read_bundle(path).entries
    assert entry.algorithm.endswith(ORDERED) and entry.digest is not None
    assert [each.status for each in verify(path)] == ["right"]
    manifest = path / "manifest.json"
    manifest.write_text(manifest.read_text().replace(entry.digest, "0" * 16))
    (verdict,) = verify(path)
    assert verdict.status == "wrong" and f"had {'0' * 16} on another machine" in verdict.detail
    registry = tvmconv.load(tvmconv.build([problem], tmp_path / "d", ["host"], jobs=1))
    assert registry[problem].info.digest is None


def test_what_is_ordered_is_for_reproducible_math_alone() -> None:
    for algorithm, math in product(algorithms.ALGORITHMS, algorithms.MATHS):
        assert algorithm.ordered == algorithm.name.endswith(ORDERED)
        if algorithm.ordered or math == "reproducible":
            assert algorithms.allows(algorithm, math) == (algorithm.ordered and math == "reproducible")


def test_integers_have_all_exact_algorithms() -> None:
    problem = parse_signature("conv2d-n1-i64x14x14-o32x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8s32-zx3")
    found = {each.name for each in algorithms.applicable(problem, Target.parse("cascadelake"), "reproducible")}
    assert found == {each.name for each in algorithms.applicable(problem, Target.parse("cascadelake"), "strict")}


def test_gpus_are_refused() -> None:
    with pytest.raises(TvmconvError, match="no kernel for cuda:sm_80 is reproducible"):
        algorithms.applicable(PROBLEMS[0], Target.parse("cuda:sm_80"), "reproducible")
