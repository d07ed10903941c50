"""Convolutions of integers: sums are exact and bits the reference's, by every algorithm, whatever layouts, types and roundings."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign.check import Case
from campaign.draw import INTEGERS, small_problem
from kernels import compile_and_call
from tiles import FLAGS
from toys import compile_bundle
from tvm import sym, tirx

from tvmconv import load, reference
from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cpu.transforms.whole_transforms import SCALES, transform_data, transform_filter, transform_sums
from tvmconv.dtypes import ROWS
from tvmconv.epilogue import is_exact
from tvmconv.errors import InputError, TvmconvError
from tvmconv.fills import exact_case
from tvmconv.isa import native
from tvmconv.isa.machine import missing_features
from tvmconv.isa.x86 import ISA as X86
from tvmconv.lowering.compiler import Choice, samples
from tvmconv.problem import Problem
from tvmconv.signature import format_signature, parse_signature
from tvmconv.support.toolchain import run_compiler
from tvmconv.targets.target import CpuTarget, Target

HOST = Target.parse("host")
Q = "bias-scale-q_0.1_3"
PROBLEMS = [
    # Sums that f32 has exactly, and longer ones.
    f"conv2d-n1-i16x9x9-o24x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-zx128-{Q}",
    "conv2d-n1-i100x5x5-o40x5x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8s32-zx3",
    "conv2d-n2-i3x17x17-o32x8x8-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-u8s8u8-zx114-bias-scale-relu-q_0.05_0",
    "conv2d-n1-i96x7x7-o40x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-s8s8s8-zx-7-bias_f32-scale-silu-q_before_0.1_-3",
    "conv2d-n1-i256x7x7-o72x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-u8u8f32-zw100-bias-scale-hardswish",
    "conv1d-n1-i600x33-o21x33-k3-s1-d2-p2_2-g1-NCX-XIO-s8s16f16-bias-scale-gelu",
    "conv3d-n1-i36x4x6x6-o32x4x6x6-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g2-NXC-XIO-u8s8bf16-zx7-scale-add",
    f"backprop2d-n1-i64x5x6-o24x10x12-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-zx128-{Q}",
    "backprop2d-n1-i160x5x6-o12x10x12-k4x4-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-s8s8s8-bias-scale-add-q_reciprocal_0.1_3",
    f"conv2d-n1-i40x13x13-o40x7x7-k3x3-s2x2-d1x1-p1x1_1x1-g40-NXC-XIO-u8s8u8-zx128-{Q}",
    "conv2d-n1-i12x9x9-o12x9x9-k5x5-s1x1-d1x1-p2x2_2x2-g12-NCX-OIX-u8s16u8-zx128-bias-scale-clip_0_6-q_0.05_0",
    f"conv2d-n1-i64x9x13-o64x9x13-k3x3-s1x1-d1x1-p1x1_1x1-g16-NXC-XIO-u8s8s8-zx9-{Q}",
    "conv2d-n1-i1x28x28-o20x24x24-k5x5-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-u8s8u8-bias-scale-q_before_reciprocal_0.1_7",
    # Taps by pairs, the last vector shifted, of an even and an odd number of rows; more taps than are unrolled; along one axis; transposed.
    "conv2d-n2-i40x9x11-o40x9x6-k5x5-s1x2-d1x1-p2x2_2x2-g40-NXC-OIX-s8u8s8-zx-128-zw255-bias-scale-clip_-3_4-q_0.3_-100",
    "conv2d-n1-i32x13x13-o32x12x13-k4x3-s1x1-d1x2-p1x2_1x2-g32-NXC-XIO-u8s16u8-zx255-bias-scale-relu-q_0.25_7",
    "conv2d-n1-i16x12x12-o16x12x12-k9x9-s1x1-d1x1-p4x4_4x4-g16-NXC-XIO-u8s8s32-zx3",
    "conv1d-n2-i48x30-o48x30-k5-s1-d1-p2_2-g48-NXC-XIO-u8s8f32-zx4-bias_f32-scale",
    f"backprop2d-n1-i17x5x6-o17x9x11-k3x3-s2x2-d1x1-p1x1_1x1-g17-NXC-OIX-u8s8u8-zx128-{Q}",
    # Planes to quads and back: padding that is not 0, whole rows and parts of them; a row's columns a stride apart, and outputs.
    f"conv2d-n1-i32x9x18-o32x9x18-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-s8s8u8-zx-7-{Q}",
    f"backprop2d-n1-i32x5x9-o32x10x18-k4x4-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-u8s8s8-zx7-{Q}",
    f"conv2d-n1-i16x13x13-o16x7x7-k3x3-s2x2-d1x1-p1x1_1x1-g16-NCX-OIX-u8s8s8-zx9-{Q}",
    # Data without zero points.
    "conv2d-n1-i64x9x9-o40x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-bias-scale-relu-q_0.1_3",
    "conv2d-n1-i2048x2x2-o64x2x2-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-u8s8s32-bias",
]  # fmt: skip

# Of Winograd's tiles: taps in pieces, dilated, of few channels in groups, along one axis; channels in two and in four parts; the most.
TILES = [
    ("winograd2_integers", "conv2d-n1-i16x9x9-o24x9x9-k5x5-s1x1-d1x1-p2x2_2x2-g1-NXC-XIO-u8s8s32-zx9"),
    ("winograd4_integers", "conv2d-n2-i12x12x13-o20x12x13-k3x2-s1x1-d2x3-p2x2_2x1-g2-NXC-XIO-s8u8s32-zx127-zw255"),
    ("winograd4_integers", "conv1d-n2-i6x30-o12x28-k3-s1-d1-p0_0-g1-NXC-XIO-s8s16s32-zx127"),
    ("winograd4_integers", "conv2d-n1-i116x9x9-o40x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-zx9-bias-scale-q_9_3"),
    ("winograd4_integers", "conv2d-n1-i256x6x7-o24x6x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8s32"),
    ("winograd2_integers", "conv2d-n1-i1828x4x4-o8x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8s32"),
]


@pytest.mark.isa("avx2")
@pytest.mark.parametrize(("algorithm", "signature"), TILES)
def test_tiles_are_exact_at_both_ends(algorithm: str, signature: str, tmp_path: Path) -> None:
    """Numbers are the least and the greatest of their types, so that transformed ones and their sums are the largest that there are."""
    problem, tiles = parse_signature(signature), algorithms.get(algorithm)
    assert tiles.covers(problem, HOST) is None
    rng, arrays = np.random.default_rng(len(signature)), exact_case(problem)[0]

    def ends(like: np.ndarray, dtype: str) -> np.ndarray:
        drawn = np.array(ROWS[dtype].range)[rng.integers(0, 2, like.shape)]
        drawn[..., : drawn.shape[-1] // 2] = ROWS[dtype].range[1]  # type: ignore[index]
        return drawn.astype(like.dtype)

    data, filter_ = ends(arrays.data, problem.types.data), ends(arrays.filter, problem.types.filter)
    arrays = replace(arrays, data=data, filter=filter_)
    got = compile_and_call(problem, HOST, tmp_path, arrays, Choice(tiles.name))
    np.testing.assert_array_equal(got, reference.compute(problem, **arrays.given()))


def test_pixels_of_no_whole_quads_are_copied_as_such(tmp_path: Path) -> None:
    """Pairs of channels are whole, quads not, so data is no array of them."""
    problem = parse_signature("conv2d-n1-i6x3x2-o5x2x2-k1x1-s2x1-d1x1-p0x0_0x0-g1-NXC-XIO-u8s8s32-zx9")
    if why := algorithms.get("quads").covers(problem, HOST):
        pytest.skip(why)
    arrays, expected = exact_case(problem)
    np.testing.assert_array_equal(compile_and_call(problem, HOST, tmp_path, arrays, Choice("quads")), expected)


def test_tiles_take_what_16_and_32_bits_keep() -> None:
    problem, tiles = parse_signature(TILES[-1][1]).with_(in_channels=256), algorithms.get("winograd4_integers")
    for other, reason in (
        (problem.with_(in_channels=1028), "its sums, scaled by the transforms, may exceed 32 bits"),
        (problem.with_(in_channels=9), "a group has an odd number of channels"),
        (problem.with_(data_format="NCX"), "it is for the layouts NXC and XIO"),
        (problem.with_(dtype="u8s16s32"), "its transformed numbers may exceed 16 bits"),
    ):
        assert tiles.covers(other, Target.parse("x86-64-v3")) == reason


@pytest.mark.parametrize(("points", "taps"), [(4, 2), (4, 3), (6, 2), (6, 3)])
def test_whole_transforms_are_the_formula_times_a_scale(points: int, taps: int) -> None:
    rng, outputs = np.random.default_rng(points), points + 1 - taps
    data, weights = rng.integers(-255, 256, points), rng.integers(-128, 128, taps)
    constants = [tirx.const(int(each), "int32") for each in (*data, *weights)]
    transformed = zip(transform_data(constants[:points]), transform_filter(points, constants[points:]), strict=True)
    sums = transform_sums([left * right for left, right in transformed], outputs)
    expected = [int(SCALES[points] * (data[i : i + taps] @ weights)) for i in range(outputs)]
    assert [int(sym.Analyzer().simplify(each)) for each in sums] == expected


def covering(problem: Problem) -> list[str]:
    return [each.name for each in algorithms.ALGORITHMS if each.kind == "cpu" and each.covers(problem, HOST) is None]


@pytest.mark.parametrize("signature", PROBLEMS)
def test_every_algorithm_is_exact(signature: str, try_kernels: Callable[..., None]) -> None:
    problem, draw = parse_signature(signature), random.Random(signature)
    assert isinstance(HOST, CpuTarget) and "plain" in covering(problem)
    choices = []
    for name in covering(problem):
        choices.append((Choice(name), False))
        if name == "plain":
            continue
        algorithm = algorithms.get(name)
        sketches = algorithm.sketches(algorithm.define(problem, HOST), HOST)
        number = draw.randrange(len(sketches))
        decisions = tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketches[number]))
        choices.append((Choice(name, number, decisions), True))
    try_kernels([Case(problem, HOST, 0, tuple(choices))])


@pytest.mark.parametrize(
    "steps", ["scale-q_0.1_-100", "scale-relu-q_0.1_5", "scale-clip_0_6-q_3e-05_5", "scale-q_reciprocal_1e+25_3"]
)
def test_scales_of_any_kind_give_the_reference(steps: str, tmp_path: Path) -> None:
    """A scale that is no number makes all the zero point, and an infinite one of a sum that is not 0 a bound."""
    problem = parse_signature(f"conv2d-n1-i16x3x3-o16x3x3-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-s8s8s8-bias-{steps}")
    arrays = exact_case(problem)[0]
    given = [np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, -0.0, 0.1, -0.3, 1e25, -1e25, 102.4, 102.5, -102.5, 1e4, 5e-5]
    bias = np.tile(np.array([0, 2**31 - 1, -(2**31), 7], np.int32), 4)
    arrays = replace(arrays, data=arrays.data * 0, bias=bias, scale=np.array(given, np.float32))
    for given_bias in (bias, np.roll(bias, 1), np.roll(bias, 2), np.roll(bias, 3)):
        each = replace(arrays, bias=given_bias)
        with np.errstate(all="ignore"):
            expected = reference.compute(problem, each.data, each.filter, each.bias, scale=each.scale)
        np.testing.assert_array_equal(compile_and_call(problem, HOST, tmp_path, each), expected)


def drawn(seed: int) -> Problem:
    """Return a small problem of integers of drawn types, zero points and rounding, whose steps are exact."""
    draw = random.Random(seed)
    while not is_exact((problem := small_problem(draw, (INTEGERS,))).epilogue):
        pass
    return problem


@pytest.mark.parametrize("seed", (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))))
def test_drawn_problems_are_exact(seed: int, try_kernels: Callable[..., None]) -> None:
    """By every algorithm that covers them, so that all have the same bits."""
    problems = [drawn(100 * seed + number) for number in range(3)]
    cases = [
        (each, tuple((Choice(name), number % 2 > 0) for name in covering(each))) for number, each in enumerate(problems)
    ]
    try_kernels([Case(problem, HOST, 0, choices) for problem, choices in cases])


def test_a_bundle_computes_what_its_signature_says(tmp_path: Path) -> None:
    """By the registry, with arrays of NumPy and PyTorch; what is left out, or another type, is refused."""
    torch = pytest.importorskip("torch")
    signature = f"conv2d-n1-i8x5x5-o8x5x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-zx128-{Q}"
    problem = parse_signature(signature)
    registry = load(compile_bundle(tmp_path / "bundle", [problem], quick=True))
    arrays, expected = exact_case(problem)
    kernel = registry[signature]
    for filter_ in (arrays.filter, kernel.pack(arrays.filter)):
        np.testing.assert_array_equal(kernel(arrays.data, filter_, arrays.bias, scale=arrays.scale), expected)
    named: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads_begin": (1, 1), "pads_end": (1, 1)}
    named |= {"dtype": "u8s8u8", "zero_point": 128, "epilogue": "scale-q(0.1,3)"}
    given = [torch.from_numpy(each) for each in (arrays.data, arrays.filter, arrays.bias)]
    output = registry.convolution(*given, scale=arrays.scale, **named)
    assert output.dtype == torch.uint8
    np.testing.assert_array_equal(output.numpy(), expected)
    del named["dtype"]
    with pytest.raises(InputError, match="data has type u8; for integers, give the types of data, filter and output"):
        registry.convolution(arrays.data, arrays.filter, arrays.bias, scale=arrays.scale, **named)
    with pytest.raises(InputError, match="data has type s8; this kernel takes u8"):
        kernel(arrays.data.view(np.int8), arrays.filter, arrays.bias, scale=arrays.scale)
    with pytest.raises(TvmconvError, match=r"no kernel for cuda:sm_90 computes problems of u8s8u8"):
        algorithms.applicable(problem, Target.parse("cuda:sm_90"))


# AVX-VNNI, and AVX-VNNI-INT8, without what else CPUs with it have and others lack: the compiled code is that of these CPUs.
VNNI, VNNI_INT8 = "alderlake-no-gfni", "sierraforest-no-gfni"
# AMX's tiles of integers beside AVX2.
TILED = "-no-".join(
    (
        *("sapphirerapids", "amx-bf16", "avx512bf16", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq", "avx512f"),
        *("avx512fp16", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vl", "avx512vnni", "avx512vpopcntdq"),
        *("avxvnni", "gfni"),
    )
)
# What computes by which algorithm the instructions that such a CPU has and this one may lack.
EMULATORS = {VNNI: ("vnni.c", "quads"), VNNI_INT8: ("vnni.c", "quads"), TILED: ("tiles.c", "amx")}
OF_QUADS = [
    "conv2d-n1-i16x9x9-o24x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-bias-scale-q_0.1_3",
    "conv2d-n1-i3x12x12-o24x6x6-k3x3-s2x2-d1x1-p1x1_0x0-g1-NCX-OIX-u8s8s32",
    "conv2d-n1-i128x5x5-o40x5x5-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-u8s8f32-bias_f32-scale-relu",
    "conv1d-n2-i22x30-o20x28-k3-s1-d1-p0_0-g2-NXC-XIO-u8s8s8-scale-q_before_0.1_-3",
    "backprop2d-n1-i20x5x6-o12x10x12-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-bias-scale-q_0.1_3",
    # Zero points, and data and filters of other signs.
    "conv2d-n2-i18x9x13-o24x9x13-k3x3-s1x1-d6x6-p6x6_6x6-g1-NXC-XIO-u8s8u8-zx114-bias-scale-q_0.1_3",
    "conv2d-n1-i64x9x9-o40x5x5-k3x3-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-s8s8s8-zx-7-scale-q_0.1_3",
    "conv2d-n1-i3x14x14-o36x7x7-k7x7-s2x2-d1x1-p3x3_2x2-g1-NXC-XIO-s8u8s32-zw128-bias",
    "conv2d-n1-i1024x2x2-o64x2x2-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-OIX-u8u8s32-zx255-zw128",
    "backprop2d-n1-i20x5x6-o20x9x11-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-OIX-s8s8u8-bias-scale-q_0.1_3",
    "conv1d-n1-i256x300-o72x300-k1-s1-d1-p0_0-g1-NXC-XIO-s8s8s32-zx5",
    "conv1d-n1-i16x7-o5x7-k1-s1-d1-p0_0-g1-NXC-XIO-u8s8s32-zx255",
]
EMULATED = """
import sys
from pathlib import Path

from kernels import assert_exact

from tvmconv.lowering.compiler import Choice
from tvmconv.signature import format_signature, parse_signature
from tvmconv.support.toolchain import run_compiler
from tvmconv.targets.target import Target

for signature in sys.argv[4:]:
    assert_exact(parse_signature(signature), Target.parse(sys.argv[1]), Path(sys.argv[2]), Choice(sys.argv[3]))
"""


@pytest.mark.parametrize("name", EMULATORS, ids=("vnni", "vnni_int8", "amx_int8"))
@pytest.mark.parametrize("seeds", (0, pytest.param(300, marks=pytest.mark.slow)))
def test_quads_are_exact_where_their_instruction_is_emulated(name: str, seeds: int, tmp_path: Path) -> None:
    """All but products of quads runs as it is, and a C file computes those: of fixed problems, and of those that are covered among drawn ones."""
    target, (file, algorithm) = Target.parse(name), EMULATORS[name]
    fixed = OF_QUADS[:: 2 if algorithm == "amx" else 1]  # emulating tiles takes longer
    problems = map(drawn, range(seeds)) if seeds else map(parse_signature, fixed)
    signatures = [format_signature(each) for each in problems if algorithms.get(algorithm).covers(each, target) is None]
    assert len(signatures) > len(fixed) // 2
    emulated = {"avx_vnni", "avx_vnni_int8", "amx_int8", "amx_tile"}
    if native() is not X86 or (lacking := missing_features([each for each in target.features if each not in emulated])):
        pytest.skip(f"this CPU lacks {lacking}, which CPUs with these have")
    run_compiler((*FLAGS, str(Path(__file__).with_name(file)), "-o", "emulator.so", "-ldl"), tmp_path)
    if algorithm == "amx" and missing_features(["amx_tile"]) and "amx_tile" in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU's tiles are hidden, and some of their instructions are not trapped")
    # A CPU with tiles configures them without a trap.
    preload = (
        {"LD_PRELOAD": str(tmp_path / "emulator.so")} if missing_features(sorted(emulated & {*target.features})) else {}
    )
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", EMULATED, name, str(tmp_path), algorithm, *signatures],
        env={**os.environ, **preload, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_quads_take_filters_whose_zero_points_are_none() -> None:
    problem, quads = parse_signature(OF_QUADS[0]), algorithms.get("quads")
    for target in ("cascadelake", "neoverse-n1", "neoverse-v1"):
        for each in (
            problem,
            problem.with_(zero_point=1),
            problem.with_(dtype="s8s8u8"),
            problem.with_(dtype="u8u8u8", filter_zero_point=128),
        ):
            assert quads.covers(each, Target.parse(target)) is None
    assert (
        quads.covers(problem, Target.parse("x86-64-v3")) == "x86-64-v3 has no avx512_vnni or avx_vnni or avx_vnni_int8"
    )
    assert quads.covers(problem.with_(dtype="u8u8u8"), Target.parse("cascadelake")) is not None
    other = problem.with_(filter_zero_point=2)
    reason = quads.covers(other, Target.parse("cascadelake"))
    assert reason == "it multiplies u8s8, or data of the other signedness, not a filter with zero point 2"
    assert algorithms.applicable(other, Target.parse("cascadelake"))[0].name == "dot"
