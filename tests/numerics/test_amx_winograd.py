"""Winograd's products of halves by AMX's tiles: right for every kind of window, and as exact as a transform may be."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import tvm_ffi
from campaign.build import compile_all, lowered
from kernels import assert_exact, call, exact_case
from tvm import tirx

from tvmconv import reference
from tvmconv.accuracy import relative_error
from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.annotations import PREFETCH_TILES
from tvmconv.algorithms.cpu import winograd_halves
from tvmconv.algorithms.cpu.amx_cost import BLOCKS
from tvmconv.algorithms.cpu.transforms.winograd_halves_window import halves_window
from tvmconv.algorithms.cpu.transforms.winograd_tiles import windows_3d
from tvmconv.dtypes import ROWS
from tvmconv.errors import RewriteError
from tvmconv.fills import random_fill
from tvmconv.isa.x86.amx import TILES
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.compiler import Choice, compile_problem, samples, schedule
from tvmconv.lowering.cpu.lowering import lower
from tvmconv.lowering.cpu.rewrites.tile_prefetching import prefetch_tiles
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import Target

HOST, NAME = Target.parse("host"), "winograd2_halves"
ALGORITHM = algorithms.get(NAME)
SPR = Target.parse("sapphirerapids")
SHAPE = "conv2d-n2-i48x9x11-o50x9x11-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-OIX-f32-bias"
SHAPES = [
    SHAPE,  # outputs shifted inwards
    "conv2d-n1-i64x14x14-o96x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias-relu",
    "conv2d-n1-i32x16x16-o64x16x16-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias",  # planes stored by squares
    "conv2d-n1-i20x7x7-o6x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias",  # few outputs
    "conv2d-n2-i54x9x8-o39x9x8-k3x3-s1x1-d1x1-p1x1_1x1-g3-NXC-OIX-f32-bias",  # 9 pairs and 13 outputs a group
    "conv2d-n1-i40x19x17-o48x19x17-k3x3-s1x1-d2x2-p2x2_2x2-g1-NXC-XIO-f32",
    "conv1d-n2-i32x90-o48x90-k3-s1-d7-p14_0-g1-NXC-XIO-f32",
    "conv2d-n1-i96x20x20-o32x20x20-k7x1-s1x1-d1x1-p3x0_3x0-g1-NXC-XIO-f32",  # pieces of the taps along one axis
    "conv3d-n1-i16x4x5x6-o32x4x5x6-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g2-NXC-XIO-f32",
    "backprop2d-n1-i64x8x8-o32x16x16-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-OIX-f32",  # phases
    "backprop2d-n1-i10x10x10-o16x10x10-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-XIO-f32",  # rows of three tiles
]
with_tiles = pytest.mark.isa(*TILES.features)


def random_decisions(signature: str) -> tuple[int, ...]:
    (sketch,) = ALGORITHM.sketches(ALGORITHM.define(parse_signature(signature), HOST), HOST)
    draw = random.Random(signature)
    return tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketch))


@with_tiles
def test_every_kind_of_window_is_right_by_halves(tmp_path: Path) -> None:
    """Numbers of 8 bits, transformed, are of 16, which halves keep: what is not multiplied is of both low halves."""
    tried = [(parse_signature(each), Choice(NAME, 0, random_decisions(each))) for each in SHAPES]
    functions = [lowered(problem, HOST, choice, EntryPoints.PLAIN) for problem, choice in tried]
    kernels = compile_all(functions, HOST, str(tmp_path / "kernels.so"), quick=True)
    for (problem, choice), kernel in zip(tried, kernels, strict=True):
        assert not isinstance(kernel, Exception), f"{format_signature(problem)} by {choice}: {kernel}"
        function = tvm_ffi.load_module(kernel.path)[f"tvmconv_kernel{kernel.ending}"]
        arrays, expected = exact_case(problem)
        error = relative_error(call(function, problem, arrays), expected)
        assert error <= ROWS[problem.dtype].transform_error / 10, (format_signature(problem), error)


@with_tiles
@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_of_halves_is_right(
    block: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also those that no estimate takes, of bands that tile registers do not fill."""

    def cut(problem: object, target: object, points: int) -> tuple[object, ...]:
        return tuple(halves_window(window, points, 2, block) for window in windows_3d(problem, target))  # type: ignore[arg-type]

    monkeypatch.setattr(winograd_halves, "cut_windows", cut)
    # No definition kept from another block may be taken for this one: a problem for each.
    problem = replace(parse_signature(SHAPE), bias=False).with_(batch=2 + BLOCKS.index(block))
    assert_exact(problem, HOST, tmp_path, Choice(NAME))


@with_tiles
@pytest.mark.parametrize("channels", [2, 64, 2048])
def test_the_error_of_halves_is_the_same_for_all_lengths(channels: int, tmp_path: Path) -> None:
    problem = parse_signature(f"conv2d-n1-i{channels}x16x16-o16x16x16-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    compile_problem(problem, HOST, tmp_path / "kernel.so", choice=Choice(NAME))
    function = tvm_ffi.load_module(str(tmp_path / "kernel.so"))["tvmconv_kernel"]
    arrays = random_fill(problem)
    error = relative_error(call(function, problem, arrays), reference.compute(problem, *arrays))
    assert 1e-6 < error < ROWS["f32"].transform_error / 2


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        (SHAPE.replace("f32", "bf16"), "multiplies f32 and f16, not bf16"),
        (SHAPE.replace("i48", "i49"), "odd number of channels"),
        (SHAPE.replace("o50x9x11", "o50x5x6").replace("s1x1", "s2x2"), "stride 1"),
        (SHAPE.replace("9x11", "1x1"), "fewer than 256 outputs"),
    ],
)
def test_what_halves_of_tiles_do_not_cover_is_said(signature: str, said: str) -> None:
    reason = ALGORITHM.covers(parse_signature(signature), SPR)
    assert reason is not None and said in reason


def test_many_channels_take_tiles_of_halves_where_transforms_are_allowed() -> None:
    problem = parse_signature("conv2d-n1-i256x56x56-o256x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    assert algorithms.applicable(problem, SPR)[0].name == NAME
    assert NAME not in {each.name for each in algorithms.applicable(problem, SPR, "strict")}
    assert "has no tiles" in str(ALGORITHM.covers(problem, Target.parse("neoverse-v2")))


def test_the_next_points_filter_is_prefetched_while_one_is_multiplied() -> None:
    """Each line of it once: the steps of all blocks of tiles share them."""
    problem = parse_signature("conv2d-n1-i128x28x28-o128x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    definition, scheduled = schedule(problem, SPR, Choice(NAME))
    text = lower(scheduled.mod, definition).module.script()
    (window,) = definition.windows
    lines = 2 * window.depth_of_step * window.block[1]
    assert text.count("prefetch(") == -(-lines // window.tile_blocks)


def test_a_filter_that_no_tile_is_loaded_from_is_not_prefetched_in_silence() -> None:
    loop = tirx.For(tirx.Var("point", "int32"), 0, 4, tirx.ForKind.SERIAL, tirx.Evaluate(0))
    asking = tirx.For(loop.loop_var, 0, 4, loop.kind, loop.body, annotations={PREFETCH_TILES: "filter_halves0"})
    with pytest.raises(RewriteError, match="it multiplies no tiles of filter_halves0"):
        prefetch_tiles(asking)
