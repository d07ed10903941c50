"""Grouped convolutions by wgmma: run by the emulator, compared exactly with the reference."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cuda_kernels import images_of, needs_nvcc
from emulator import run
from test_spaces import frames
from test_wgmma import SM_90A, is_exact, tiled_source

from tvmconv import fills
from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cuda.wgmma_packing import depth_of
from tvmconv.algorithms.cuda.wgmma_tiles import packing_of, stages_of, wgmma_tiles
from tvmconv.epilogue import parse_epilogue
from tvmconv.lowering.cuda.nvcc import compile_fatbin
from tvmconv.problem import Problem
from tvmconv.signature import format_signature, parse_signature

# Signature, and whether tiles have outputs of several groups.
PROBLEMS = {
    "of_4": ("conv2d-n1-i64x9x9-o64x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g16-NXC-XIO-f16-bias-relu", True),
    "of_8": ("conv2d-n2-i96x9x10-o96x5x5-k3x3-s2x2-d1x1-p1x1_1x1-g12-NXC-XIO-bf16-bias-scale-add", True),
    "of_16": ("conv2d-n1-i80x14x9-o80x14x9-k3x3-s1x1-d2x1-p2x1_2x1-g5-NXC-XIO-f16", True),
    "of_24": ("conv2d-n1-i120x9x9-o120x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g5-NXC-XIO-f16-bias", True),
    "of_32": ("conv2d-n1-i96x9x9-o96x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g3-NXC-XIO-bf16-bias-relu-add", False),
    "of_80": ("conv2d-n1-i160x8x9-o128x8x9-k3x3-s1x1-d1x1-p1x1_1x1-g2-NXC-XIO-f16-bias", False),
    "fewer_outputs": ("conv1d-n2-i96x40-o48x38-k3-s1-d1-p0_0-g6-NXC-XIO-bf16-bias-prelu", True),
    "more_outputs": ("conv2d-n1-i32x9x9-o96x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g8-NXC-XIO-f16", True),
    "depthwise": ("conv2d-n1-i72x9x9-o72x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g72-NXC-XIO-f16-bias", True),
    "odd": ("conv2d-n1-i15x9x9-o21x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g3-NXC-OIX-bf16-bias-add", True),
    "planes": ("conv2d-n2-i64x9x9-o64x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g8-NCX-OIX-f16-bias-add", True),
    "planes_alone": ("conv2d-n2-i96x6x9-o96x6x9-k3x3-s1x1-d1x1-p1x1_1x1-g3-NCX-OIX-f16-bias", False),
    "volume": ("conv3d-n1-i32x3x6x7-o32x3x6x7-k3x3x3-s1x1x1-d1x1x1-p2x1x1_0x1x1-g4-NXC-XIO-f16-bias", True),
    "one_tap": ("conv2d-n1-i64x9x9-o96x9x9-k1x1-s1x1-d1x1-p0x0_0x0-g4-NXC-OIX-f16", True),
    "transposed": ("backprop2d-n1-i64x5x6-o48x10x11-k4x3-s2x2-d1x1-p1x1_1x1-g8-NXC-XIO-f16-bias", True),
    "transposed_alone": ("backprop1d-n1-i64x20-o64x59-k5-s3-d1-p1_2-g2-NXC-XIO-bf16", False),
    "transposed_planes": ("backprop2d-n1-i48x5x6-o24x10x12-k4x4-s2x2-d1x1-p1x1_1x1-g4-NCX-OIX-bf16-add", True),
    "transposed_one_tap": ("backprop2d-n1-i64x5x6-o64x5x6-k1x1-s1x1-d1x1-p0x0_0x0-g4-NXC-OIX-bf16", True),
}
QUICK = ("of_8", "of_24", "of_32", "more_outputs", "odd", "transposed")


def cases(quick: tuple[str, ...]) -> list:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in PROBLEMS]


@pytest.mark.parametrize("name", cases(QUICK))
def test_is_exact(name: str) -> None:
    signature, mixed = PROBLEMS[name]
    problem = parse_signature(signature)
    tile = wgmma_tiles(problem, SM_90A)[0]
    source = tiled_source(signature, tile.rows, tile.columns, blocks=2, halo=tile.has_halo, alternate=tile.alternate)
    assert is_exact(source, problem)
    assert source.source.count("tvmconv_kernel(") == 1
    assert mixed or problem.filter_format == "OIX" or problem.op != "convolution" or len(source.launches) == 1


def random_case(seed: int) -> tuple[Problem, int]:
    """Return a problem of several groups, and the number of the tile to compute it by."""
    draw = random.Random(seed)
    rank, groups = draw.randint(1, 3), draw.randint(2, 10)

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw.randint(least, most) for _ in range(rank))

    kernel, strides, dilations, begin, end = each(1, 3), each(1, 3), each(1, 2), each(0, 2), each(0, 2)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    begin, end = (tuple(min(pad, span - 1) for pad, span in zip(pads, spans, strict=True)) for pads in (begin, end))
    inputs = tuple(draw.randint(span, span + 100 // 5**rank) for span in spans)
    axes = list(zip(inputs, begin, end, spans, strides, strict=True))
    op = draw.choice(["convolution", "convolution_backprop_data"])
    if op == "convolution":
        outputs = tuple((x + b + e - span) // s + 1 for x, b, e, span, s in axes)
    else:
        outputs = tuple(max((x - 1) * s + span - b - e, 1) for x, b, e, span, s in axes)
    channels, columns = draw.choice([(4, 4), (8, 8), (16, 32), (32, 32), (3, 5), (20, 24), (48, 64)])
    problem = Problem(
        op, draw.randint(1, 2), groups * channels, inputs, groups * columns, outputs, kernel, strides, dilations, begin, end,
        groups=groups, data_format=draw.choice(["NXC", "NCX"]), filter_format=draw.choice(["XIO", "OIX"]),
        dtype=draw.choice(["f16", "bf16"]), bias=draw.random() < 0.5, epilogue=parse_epilogue(draw.choice([None, "scale-add-prelu"])),
    )  # fmt: skip
    return problem, draw.randrange(len(wgmma_tiles(problem, SM_90A)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_problems_are_exact(seed: int) -> None:
    problem, number = random_case(seed)
    tile = wgmma_tiles(problem, SM_90A)[number]
    signature, stages = format_signature(problem), stages_of(tile, SM_90A)[-1]
    assert is_exact(
        tiled_source(signature, tile.rows, tile.columns, stages, 2, tile.has_halo, tile.alternate), problem
    ), signature


@pytest.mark.parametrize("name", PROBLEMS)
def test_which_algorithm(name: str) -> None:
    """Where groups are mixed, a NaN of one may reach another."""
    signature, mixed = PROBLEMS[name]
    problem = parse_signature(signature)
    exact, transform = algorithms.get("wgmma"), algorithms.get("wgmma_groups")
    assert (exact.numerical_class, transform.numerical_class) == ("exact", "transform")
    wrong, right = (exact, transform) if mixed else (transform, exact)
    assert right.covers(problem, SM_90A) is None and wrong.covers(problem, SM_90A)
    packing = packing_of(problem, SM_90A)
    for tile in wgmma_tiles(problem, SM_90A):
        assert tile.columns == packing.columns
        assert mixed or depth_of(packing.problem, tile.columns) % tile.span == 0


@needs_nvcc
def test_machine_code() -> None:
    """Neither copies of filters nor multiplications keep values in memory."""
    for name in ("of_8", "transposed_planes"):
        tile = wgmma_tiles(parse_signature(PROBLEMS[name][0]), SM_90A)[0]
        source = tiled_source(PROBLEMS[name][0], tile.rows, tile.columns, halo=tile.has_halo, alternate=tile.alternate)
        ((_, _, cubin),) = images_of(compile_fatbin(source.source, SM_90A))
        assert frames(cubin) == [0, 0]


@pytest.mark.parametrize("name", ["of_32", pytest.param("of_80", marks=pytest.mark.slow)])
def test_groups_alone_keep_what_is_not_a_number(name: str) -> None:
    problem = parse_signature(PROBLEMS[name][0])
    arrays, expected = fills.exact_case(problem)
    channels, outputs = problem.in_channels // problem.groups, problem.out_channels // problem.groups
    arrays.data[..., channels : 2 * channels] = np.nan
    tile = wgmma_tiles(problem, SM_90A)[0]
    got = run(
        tiled_source(PROBLEMS[name][0], tile.rows, tile.columns, halo=tile.has_halo, alternate=tile.alternate),
        problem,
        arrays,
    )
    is_theirs = np.isnan(got.astype(np.float32)).any((0, 1, 2))
    assert is_theirs.tolist() == [o // outputs == 1 for o in range(problem.out_channels)]
    assert np.array_equal(got[..., ~is_theirs].astype(np.float64), expected[..., ~is_theirs].astype(np.float64))
