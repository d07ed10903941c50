"""Convolutions by wgmma: their CUDA C++ and its PTX run by the emulator, compared exactly with the reference, and compiled.

What the emulator cannot find out is whether PTX's documentation is as GPUs are; `tests/gpu` calls the same kernels there.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cuda_kernels import ELF, cuda_source, images_of, needs_nvcc
from emulator import EmulationError, run
from test_spaces import frames, operations

import tvmconv
from tvmconv import fills
from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cuda.wgmma_packing import mixes_groups
from tvmconv.algorithms.cuda.wgmma_phases import phases_of
from tvmconv.algorithms.cuda.wgmma_tiles import as_3d, busiest, stages_of, wgmma_tiles
from tvmconv.epilogue import parse_epilogue
from tvmconv.errors import TargetError
from tvmconv.lowering.compiler import Choice, default_choice, samples, schedule, sketches_of
from tvmconv.lowering.cuda.lowering import to_source
from tvmconv.lowering.cuda.nvcc import compile_fatbin
from tvmconv.lowering.cuda.source import CudaSource
from tvmconv.problem import Problem
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.cuda import CudaTarget
from tvmconv.tuning.replay import choice_of, spaces_of
from tvmconv.tuning.search import Candidate

SM_90A, SM_90 = CudaTarget.parse("cuda:sm_90a"), CudaTarget.parse("cuda:sm_90")
# Signature, and the rows and columns of a tile. With fewer blocks than tiles, so that a block computes several.
PROBLEMS = {
    "padded": ("conv2d-n2-i64x9x9-o64x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16-bias", 128, 64),
    "strided": ("conv2d-n3-i72x9x7-o136x5x4-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias", 128, 128),
    "dilated": ("conv2d-n1-i40x14x20-o24x14x20-k3x3-s1x1-d2x3-p2x3_2x3-g1-NXC-XIO-f16", 256, 64),
    "causal": ("conv3d-n1-i24x3x9x7-o40x3x9x7-k3x1x3-s1x1x1-d1x1x1-p2x0x1_0x0x1-g1-NXC-XIO-bf16-bias", 128, 64),
    "one_axis": ("conv1d-n2-i40x300-o24x150-k5-s2-d3-p6_5-g1-NXC-XIO-f16-bias", 128, 64),
    "pointwise": ("conv2d-n1-i264x12x14-o320x12x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16", 128, 256),
    "transposed": ("backprop2d-n2-i24x7x6-o72x14x11-k5x5-s2x2-d1x1-p2x2_1x2-g1-NXC-XIO-f16-bias-add", 128, 64),
    "upsampled": ("backprop2d-n1-i72x8x8-o264x16x16-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-bf16", 128, 256),
    # Outputs that no tap meets: of phases, in rows and columns; and where the stride and the dilation have a divisor.
    "few_taps": ("backprop2d-n1-i8x6x6-o8x18x20-k1x2-s3x3-d1x1-p0x0_0x0-g1-NXC-XIO-f16-bias-relu-add", 256, 64),
    "dilated_phases": ("backprop2d-n2-i24x7x6-o40x18x13-k3x3-s2x2-d3x2-p1x0_0x2-g1-NXC-XIO-bf16-bias", 128, 64),
    "eight_phases": ("backprop1d-n2-i72x50-o136x396-k16-s8-d1-p4_8-g1-NXC-XIO-f16-bias", 128, 128),
    "volume": ("backprop3d-n2-i16x3x4x5-o8x7x8x10-k3x2x2-s2x2x2-d1x1x1-p0x0x0_0x0x0-g1-NXC-XIO-f16-bias-add", 128, 64),
    "most_phases": (
        "backprop3d-n1-i8x2x3x2-o16x6x9x8-k3x4x5-s3x3x3-d1x1x1-p0x0x0_0x1x0-g1-NXC-XIO-f16-bias-add",
        128,
        64,
    ),
    # A product of matrices, of whose columns several have a channel's bias.
    "one_pixel": ("backprop2d-n32-i104x1x1-o16x4x4-k4x4-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f16-bias", 128, 64),
    "one_pixel_first": ("backprop2d-n32-i72x1x1-o8x2x3-k2x3-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f16-bias-scale", 128, 64),
    "one_tap": ("conv2d-n2-i72x9x9-o136x9x9-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-bf16-bias", 128, 128),
    "planes": ("conv2d-n9-i16x9x9-o24x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f16-bias-add", 256, 32),
    # Of 4 x 225 pixels: vectors of 4 reach into other planes.
    "odd_planes": ("conv3d-n1-i16x4x15x15-o16x4x15x15-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NCX-OIX-f16-bias", 128, 32),
    # A phase has every third row.
    "rows_apart": ("backprop2d-n3-i32x4x4-o16x12x5-k3x2-s3x1-d1x1-p0x0_0x0-g1-NCX-XIO-f16-bias", 128, 32),
    "tall": ("conv2d-n2-i200x12x14-o72x12x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f16-bias", 256, 128),
}
QUICK = ("strided", "causal", "pointwise", "tall", "transposed", "few_taps", "one_pixel_first")
# By boxes of data for all taps.
HALOS = {
    "padded": (128, 64),
    "dilated": (256, 32),
    "causal": (128, 32),
    "transposed": (128, 64),
    "dilated_phases": (128, 128),
}
# In 3 stages, of two tiles by one block: 5 steps each.
RING = ("conv1d-n1-i320x256-o128x256-k1-s1-d1-p0_0-g1-NXC-XIO-f16-bias", 256, 64, 3)
# What makes "padded" one.
TRANSPOSED = {"op": "convolution_backprop_data"}
HGMMA, UTMALDG = 0x9F0, 0x5B4  # the low 12 bits of machine instructions, as in test_spaces.py


def tiled_source(
    signature: str,
    rows: int,
    columns: int,
    stages: int | None = None,
    blocks: int = 1,
    halo: bool = False,
    alternate: bool = False,
) -> CudaSource:
    """Return the source of a problem by tiles of one size, with at most so many blocks."""
    problem = parse_signature(signature)
    sizes = [(tile.rows, tile.columns, tile.has_halo, tile.alternate) for tile in wgmma_tiles(problem, SM_90A)]
    number = sizes.index((rows, columns, halo, alternate))
    name = "wgmma_groups" if mixes_groups(problem) else "wgmma"
    (sample,) = samples(sketches_of(name, problem, SM_90A)[1][number])
    decisions = None if stages is None else ([int(value) for value in sample.attrs[0]].index(stages),)
    definition, scheduled = schedule(problem, SM_90A, Choice(name, number, decisions))
    source = to_source(scheduled.mod, definition, SM_90A)
    *before, launch = source.launches
    return replace(source, launches=(*before, replace(launch, grid=(min(blocks, launch.grid[0]), 1, 1))))


def is_exact(source: CudaSource, problem: Problem) -> bool:
    arrays, expected = fills.exact_case(problem)
    return np.array_equal(run(source, problem, arrays).astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PROBLEMS]
)
def test_is_exact(name: str) -> None:
    signature, rows, columns = PROBLEMS[name]
    source = tiled_source(signature, rows, columns)
    assert is_exact(source, parse_signature(signature))


@pytest.mark.parametrize(
    "name", [each if each == "dilated" else pytest.param(each, marks=pytest.mark.slow) for each in HALOS]
)
def test_one_box_of_data_for_all_taps(name: str) -> None:
    signature = PROBLEMS[name][0]
    assert is_exact(tiled_source(signature, *HALOS[name], halo=True), parse_signature(signature))


# By turns, and with a halo.
ALTERNATES = {
    "padded": (128, 64, 3, 1, True),
    "strided": (128, 128, 4, 1, False),
    "transposed": (128, 64, 3, 2, False),
    "few_taps": (256, 64, 3, 1, False),
    "eight_phases": (128, 32, 8, 1, False),
    "tall": (256, 64, 4, 2, False),
    "planes": (256, 32, 4, 1, False),
}


@pytest.mark.parametrize(
    "name",
    [each if each in ("strided", "few_taps") else pytest.param(each, marks=pytest.mark.slow) for each in ALTERNATES],
)
def test_one_multiplies_while_the_other_stores(name: str) -> None:
    signature = PROBLEMS[name][0]
    assert is_exact(tiled_source(signature, *ALTERNATES[name], alternate=True), parse_signature(signature))


def random_case(seed: int) -> tuple[str, int, int, int, int, bool, bool]:
    """Return a problem that it covers, and the arguments of `tiled_source` to compute it by."""
    draw = random.Random(seed)
    rank = draw.randint(1, 3)

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw.randint(least, most) for _ in range(rank))

    kernel, strides, dilations, begin, end = (
        each(1, 4),
        each(1, 3),
        each(1, draw.choice([1, 2])),
        each(0, 3),
        each(0, 3),
    )
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    inputs = tuple(draw.randint(span, span + 200 // 6**rank) for span in spans)
    axes = zip(inputs, begin, end, spans, strides, strict=True)
    outputs = tuple((x + b + e - span) // s + 1 for x, b, e, span, s in axes)
    aligned = draw.choice([1, 8])
    data_channels, out_channels = (aligned * draw.randint(1, draw.choice([3, 144 // aligned])) for _ in range(2))
    op = "convolution"
    if draw.random() < 0.5:
        op = "convolution_backprop_data"
        begin, end = (tuple(min(pad, span - 1) for pad, span in zip(pads, spans, strict=True)) for pads in (begin, end))
        axes = zip(inputs, begin, end, spans, strides, strict=True)
        outputs = tuple(max((x - 1) * s + span - b - e, 1) for x, b, e, span, s in axes)
    problem = Problem(
        op, draw.randint(1, 3), data_channels, inputs, out_channels, outputs, kernel, strides, dilations,
        begin, end, data_format=draw.choice(["NXC", "NCX"]), filter_format=draw.choice(["XIO", "OIX"]),
        dtype=draw.choice(["f16", "bf16"]), bias=draw.random() < 0.5, epilogue=parse_epilogue(draw.choice([None, "scale-add-prelu"])),
    )  # fmt: skip
    if problem.is_constant:
        return random_case(seed + 1000)
    tile = draw.choice(wgmma_tiles(problem, SM_90A))
    how = (
        tile.rows,
        tile.columns,
        draw.choice(stages_of(tile, SM_90A)),
        draw.randint(1, 3),
        tile.has_halo,
        tile.alternate,
    )
    return format_signature(problem), *how


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_random_problems_are_exact(seed: int) -> None:
    signature, *tile = random_case(seed)
    assert is_exact(tiled_source(signature, *tile), parse_signature(signature)), (signature, tile)


# What is wrong, the text that makes it so, and what shows it; None: the output does.
FAULTS = {
    "multiplies before data come": ("tvmconv_wait(data_ring.arrived(), data_ring.parity);", "", "more threads arrive"),
    "multiplies before the filter comes": (
        "tvmconv_wait(filter_ring.arrived(), filter_ring.parity);",
        "",
        "more threads arrive",
    ),
    "overwrites what is multiplied": (
        "tvmconv_wait(data_ring.empty(), data_ring.parity ^ 1);",
        "",
        "more threads arrive",
    ),
    "releases a stage too early": ("tvmconv_multiplies_wait<1>();", "tvmconv_multiplies_wait<2>();", None),
    "never releases a stage": ("if (last_data != nullptr && lane == 0) tvmconv_arrive(last_data);", "", "never comes"),
    "waits for more bytes": ("kBoxN * kRowBytes;", "kBoxN * 2 * kRowBytes;", "never comes"),
    "waits for the wrong phase": ("data_ring.parity ^ 1", "data_ring.parity", "never comes"),
    "keeps what it wrote to itself": ("    tvmconv_publish();\n", "", "not made known"),
    "overwrites what is stored": ("if (leads) tvmconv_stores_read();", "", None),
    "leaves before it has stored": ("if (leads) tvmconv_stores_done();", "", "under way"),
    "does not fence registers": ("tvmconv_multiplies_begin();\n#pragma", "\n#pragma", "without a fence"),
    "reads the filter's rows elsewhere": ("k * 16 * kOutRowBytes", "k * 8 * kOutRowBytes", None),
    "reads the filter as transposed": ("adds, 1, 1, 0, 1;", "adds, 1, 1, 0, 0;", None),
    "takes rows for swizzled otherwise": ("(offset ^ (offset >> 7 & (kOutRowBytes / 16 - 1)) << 4)", "offset", None),
    "is not aligned": (" + (-tvmconv_shared_address(tvmconv_shared) & 1023)", "", "multiple of 128|not aligned"),
    "swaps a copy's coordinates": ("{%3, %4, %5, %6, %7}", "{%4, %3, %5, %6, %7}", None),
}
# Of "tall" by turns.
ALTERNATE_FAULTS = {
    "multiplies out of turn": ("if (kAlternate) tvmconv_wait(turns + group, (round / 2 + 1 - group) % 2);", ""),
    "never gives the turn": ("if (lane == 0) tvmconv_arrive(turns + 1 - group);", ""),
    "does not skip the other's stages": ("data_ring.skip(boxes), filter_ring.skip", "filter_ring.skip"),
    "stores from the other's tile": ("if (kAlternate) out += group * kOutBytes;", ""),
}
QUICK_FAULTS = ("overwrites what is multiplied", "releases a stage too early", "keeps what it wrote to itself")


@pytest.mark.parametrize(
    "fault", [name if name in QUICK_FAULTS else pytest.param(name, marks=pytest.mark.slow) for name in FAULTS]
)
def test_faults_show(fault: str) -> None:
    text, instead, said = FAULTS[fault]
    source = tiled_source(*RING)
    assert text in source.source
    broken = replace(source, source=source.source.replace(text, instead))
    if said is None:
        try:
            assert not is_exact(broken, parse_signature(RING[0]))
        except EmulationError as error:
            assert "the order of threads" in str(error)
    else:
        with pytest.raises(EmulationError, match=said):
            is_exact(broken, parse_signature(RING[0]))


@pytest.mark.slow
@pytest.mark.parametrize("fault", ALTERNATE_FAULTS)
def test_faults_of_turns_show(fault: str) -> None:
    text, instead = ALTERNATE_FAULTS[fault]
    signature = PROBLEMS["tall"][0].replace("n2", "n6")
    source = tiled_source(signature, 128, 32, 3, 1, alternate=True)
    assert text in source.source
    try:
        shows = not is_exact(replace(source, source=source.source.replace(text, instead)), parse_signature(signature))
    except EmulationError:
        shows = True
    assert shows


@needs_nvcc
@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_machine_code(step: int) -> None:
    """Sizes of tiles: sums stay in registers, and the code is of sm_90a alone."""
    signature = "conv3d-n1-i64x6x30x30-o256x6x30x30-k3x3x3-s1x1x1-d1x1x1-p2x1x1_0x1x1-g1-NXC-XIO-{}-bias"
    transposed = "backprop3d-n1-i64x6x30x30-o256x12x60x60-k2x4x5-s2x2x2-d1x1x1-p0x1x2_0x1x1-g1-NXC-XIO-{}-bias-add"
    instructions, texts = (Path(tvmconv.__file__).parent / "lowering/cuda/native/hopper.cuh").read_text(), []
    for number, tile in enumerate(wgmma_tiles(parse_signature(signature.format("f16")), SM_90A)[::step]):
        for kind in (signature, transposed):
            how = tile.rows, tile.columns, None, 1, tile.has_halo and kind == signature, tile.alternate
            source = tiled_source(kind.format(("f16", "bf16")[number % 2]), *how)
            assert source.launches[0].shared_bytes <= SM_90A.shared_bytes
            # In one file, as most of the compiler's time goes into the headers.
            kernel = source.source.removeprefix(instructions).replace("tvmconv_kernel", f"kernel{len(texts)}")
            texts.append(f"namespace number{len(texts)} {{\n{kernel}\n}}\n")
    ((kind, architecture, cubin),) = images_of(compile_fatbin(instructions + "".join(texts), SM_90A))
    assert (kind, architecture) == (ELF, 90)
    assert frames(cubin) == [0] * len(texts)
    assert operations(cubin) >= {HGMMA, UTMALDG}


@pytest.mark.parametrize(
    ("target", "change", "why"),
    [
        (SM_90, {}, "sm_90a"),
        (SM_90A, {"dtype": "f32"}, "f16 and bf16"),
        (SM_90A, {"strides": (9, 1), "in_spatial": (18, 9), "out_spatial": (2, 9)}, "strides up to 8"),
        (SM_90A, TRANSPOSED | {"strides": (4, 8), "out_spatial": (33, 65)}, "each of 32 stride phases"),
        (SM_90A, {"groups": 8}, "multiples of 16 input and 32 output channels a group"),
        (SM_90A, {"batch": 0}, "does not depend on data"),
    ],
)
def test_what_it_is_not_for(target: CudaTarget, change: dict, why: str) -> None:
    problem = parse_signature(PROBLEMS["padded"][0])
    covers = algorithms.get("wgmma").covers
    assert covers(problem, SM_90A) is None
    assert why in (covers(problem.with_(**change), target) or "")
    assert algorithms.applicable(problem.with_(**change), target), "another algorithm computes it"


def test_it_is_chosen() -> None:
    signature = "conv2d-n32-i64x28x28-o128x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16"
    problem = parse_signature(signature)
    assert default_choice(problem, SM_90A).algorithm == "wgmma"
    assert "wgmma" in [each.name for each in algorithms.applicable(problem, SM_90A, "strict")]
    assert "wgmma.mma_async" in cuda_source(signature, SM_90A).source
    problem = parse_signature(PROBLEMS["padded"][0])
    (space,) = (each for each in spaces_of(problem, SM_90A) if each.algorithm == "wgmma")
    for number, sketch in enumerate(space.sketches):
        recorded = choice_of(problem, SM_90A, Candidate("wgmma", number, sketch.default))
        definition, scheduled = schedule(problem, SM_90A, recorded)
        assert "wgmma.mma_async" in to_source(scheduled.mod, definition, SM_90A).source


def test_sm_90a_stands_alone() -> None:
    assert SM_90A.features == ("sm_90a",) and SM_90A.folder == "cuda-sm_90a"
    for text in ("cuda:sm_90,sm_90a", "cuda:sm_90a,sm_100", "cuda:sm_80a"):
        with pytest.raises(TargetError, match=r"or cuda:sm_90a alone, beside another target"):
            CudaTarget.parse(text)


@pytest.mark.parametrize(
    ("signature", "rows", "share"),
    [
        ("conv2d-n32-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16", 128, 0.95),
        ("conv2d-n32-i256x14x14-o256x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16", 128, 0.95),
        ("conv2d-n32-i512x7x7-o512x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16", 128, 0.85),
        ("conv3d-n1-i128x8x60x104-o128x8x60x104-k3x3x3-s1x1x1-d1x1x1-p2x1x1_0x1x1-g1-NXC-XIO-bf16", 256, 0.9),
        ("conv2d-n32-i256x56x56-o128x28x28-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-f16", 128, 0.95),
    ],
)
def test_boxes_fill_the_rows(signature: str, rows: int, share: float) -> None:
    problem = as_3d(parse_signature(signature))
    tiles = wgmma_tiles(parse_signature(signature), SM_90A)
    (tile,) = (t for t in tiles if (t.rows, t.columns, t.has_halo, t.alternate) == (rows, 128, False, False))
    pixels = problem.batch * np.prod(problem.out_spatial)
    boxes = tile.tiles(problem) / -(-problem.out_channels // 128)
    assert np.prod(tile.box) <= rows
    assert pixels / (boxes * rows) >= share
    assert all(b * s <= 256 for b, s in zip(tile.box[1:], problem.strides, strict=True))


@pytest.mark.parametrize("tiles", [1, 64, 131, 132, 200, 1000])
def test_the_model_deals_out_tiles_as_the_kernel(tiles: int) -> None:
    taps = [9.0, 6.0, 6.0, 4.0]
    cycles = [each for each in taps for _ in range(tiles)]
    loads = np.zeros(132)
    for start in range(0, len(cycles), 132):
        dealt = np.pad(cycles[start : start + 132], (0, max(start + 132 - len(cycles), 0)))
        loads += dealt if start // 132 % 2 == 0 else dealt[::-1]
    assert busiest(taps, tiles) == loads.max()


def test_phases() -> None:
    """Those of the windows of other algorithms, and what these leave out; each output is of one."""
    flat = as_3d(parse_signature(PROBLEMS["few_taps"][0]))
    phases = phases_of(flat).phases
    assert len(phases) == 9 and [np.prod(phase.taps) for phase in phases] == [1, 1] + [0] * 7
    outputs = np.zeros(flat.out_spatial, int)
    for phase in phases:
        part = outputs[tuple(slice(first, None, step) for first, step in zip(phase.first, (1, 3, 3), strict=True))]
        assert part.shape == phase.outputs
        part += 1
    assert (outputs == 1).all()
