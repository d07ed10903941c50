"""Tiles and tasks are decided once: the schedule does, and the estimate counts, what a plan says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cpu import planar
from tvmconv.algorithms.cpu.direct import direct_windows, windows_estimate
from tvmconv.algorithms.cpu.direct_plan import plan_windows
from tvmconv.algorithms.cpu.kn2row import tap_windows, vector_counts, widths
from tvmconv.algorithms.cpu.model.cost import cycles
from tvmconv.algorithms.cpu.transforms.winograd_cost import windows_estimate as winograd_estimate
from tvmconv.algorithms.cpu.transforms.winograd_plan import planned_windows
from tvmconv.algorithms.cpu.windows.filter import vectors_together
from tvmconv.algorithms.cpu.windows.plan import Options
from tvmconv.algorithms.cpu.windows.row_window import PlanarWindow
from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.shapes import part_counts
from tvmconv.lowering.compiler import samples
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

ROWS = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
ONE_ROW = "conv1d-n1-i64x400-o128x400-k1-s1-d1-p0_0-g1-NXC-XIO-f32"
DEEP = "conv2d-n1-i1024x21x21-o256x21x21-k3x3-s1x1-d2x2-p2x2_2x2-g1-NXC-XIO-f32"
PARTS = "conv2d-n1-i1024x7x7-o1280x4x4-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
CLASSES = "backprop2d-n1-i32x14x14-o16x28x28-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32"
PHASED = "backprop1d-n1-i66x40-o1x1376-k128-s32-d1-p0_0-g1-NXC-XIO-f32"
DEPTHWISE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g64-NXC-XIO-f32"
LONG = "conv2d-n1-i64x56x56-o64x56x56-k31x31-s1x1-d1x1-p15x15_15x15-g64-NXC-XIO-f32"
SHUFFLED = "conv2d-n1-i64x56x56-o64x28x28-k3x3-s2x2-d1x1-p1x1_1x1-g8-NXC-XIO-f32"
PLANES = "conv2d-n1-i16x56x56-o32x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32"
DEPTHWISE_PLANES = "conv2d-n1-i64x112x112-o64x112x112-k3x3-s1x1-d1x1-p1x1_1x1-g64-NCX-OIX-f32"
ROW_OF_PLANES = "conv1d-n1-i64x8000-o32x8000-k3-s1-d1-p1_1-g1-NCX-OIX-f32"

CASES = [
    *(("direct", each) for each in (ROWS, ONE_ROW, DEEP, PARTS, CLASSES)),
    *(("grouped", each) for each in (DEPTHWISE, LONG, SHUFFLED)),
    ("phased", PHASED),
]


def _with_tile(window: Window, width: int) -> Window:
    """Return the window with its first plan alone, with tiles of so many pixels."""
    return replace(window, plans=(replace(window.plans[0], tiles=([width], width)),))


@pytest.mark.parametrize(("algorithm", "signature"), CASES)
def test_the_schedule_does_what_the_plan_says(algorithm: str, signature: str) -> None:
    target, found = Target.parse("x86-64-v4"), algorithms.get(algorithm)
    definition = found.define(parse_signature(signature), target)
    assert len(definition.windows[0].plans) == len(found.sketches(definition, target))
    # The worst tile of each window, and no other.
    windows = [_with_tile(window, window.plans[0].tiles[0][-1]) for window in definition.windows]
    (sketch,) = found.sketches(replace(definition, windows=windows), target)
    chosen = [[int(each) for each in sample.attrs[0]] for sample in samples(sketch)]
    assert all(window.plans[0].tiles[0] in chosen for window in windows)
    assert all(
        window.plans[0].tiles[0] not in chosen for window in definition.windows if len(window.plans[0].tiles[0]) > 1
    )


@pytest.mark.parametrize("signature", [ROWS, ONE_ROW, CLASSES, DEPTHWISE, LONG, SHUFFLED])
def test_the_estimate_counts_what_the_plan_says(signature: str) -> None:
    target, problem = Target.parse("x86-64-v4"), parse_signature(signature)
    assert isinstance(target, CpuTarget)
    windows = plan_windows(direct_windows(problem, target, problem.groups > 1, prepacked=True), target)
    best = cycles(windows_estimate(windows, target), target)
    assert best == algorithms.get("grouped" if problem.groups > 1 else "direct").cycles(problem, target)
    assert cycles(windows_estimate([_with_tile(window, 1) for window in windows], target), target) > best


@pytest.mark.parametrize("signature", [PLANES, DEPTHWISE_PLANES, ROW_OF_PLANES])
def test_planar_is_scheduled_and_counted_by_its_plans(signature: str) -> None:
    target, algorithm, problem = Target.parse("x86-64-v4"), algorithms.get("planar"), parse_signature(signature)
    assert isinstance(target, CpuTarget)
    definition, windows = algorithm.define(problem, target), planar.planar_windows(problem, target, prepacked=True)
    best = cycles(planar.windows_estimate(windows, target), target)
    liked = definition.windows[0].plans[0].vectors
    for vectors in (liked, (liked[0][-1:], liked[0][-1])):
        definition, windows = (
            replace(definition, windows=[_with_vectors(each, vectors) for each in definition.windows]),
            [_with_vectors(each, vectors) for each in windows],
        )
        (sketch,) = algorithm.sketches(definition, target)
        assert [int(each) for each in samples(sketch)[1].attrs[0]] == list(vectors[0])
    # Whether fewer vectors or more, with as many rows.
    assert best == algorithm.cycles(problem, target) != cycles(planar.windows_estimate(windows, target), target)


@pytest.mark.parametrize("channels", [48, 64, 112, 1232])
def test_channels_of_planar_tiles_lie_together_in_the_filter(channels: int) -> None:
    target = Target.parse("x86-64-v4")
    problem = parse_signature(f"conv2d-n1-i32x28x28-o{channels}x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32")
    assert isinstance(target, CpuTarget)
    (window,) = planar.planar_windows(problem, target, prepacked=True)
    assert window.together % window.plans[0].channels == channels % window.together == 0


@pytest.mark.parametrize(("channels", "vectors"), [(16, 4), (32, 2)])
def test_planar_tiles_have_fewer_vectors_where_l1_does_not_keep_all_rows_of_their_taps(
    channels: int, vectors: int
) -> None:
    target = Target.parse("znver5")
    problem = parse_signature(f"conv2d-n1-i{channels}x128x128-o64x64x64-k3x3-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-f32")
    assert isinstance(target, CpuTarget)
    (window,) = planar.planar_windows(problem, target, prepacked=True)
    assert window.plans[0].vectors[1] == vectors


def _with_vectors(window: PlanarWindow, vectors: Options) -> PlanarWindow:
    """Return the window with its first plan alone, with tiles of so many vectors of a row."""
    return replace(window, plans=(replace(window.plans[0], vectors=vectors),))


def test_winograd_is_scheduled_and_counted_by_its_plans() -> None:
    target, algorithm = Target.parse("x86-64-v4"), algorithms.get("winograd4")
    assert isinstance(target, CpuTarget)
    problem = parse_signature("conv2d-n1-i512x40x40-o512x40x40-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    definition = algorithm.define(problem, target)
    sketches = algorithm.sketches(definition, target)
    for plan, sketch in zip(definition.windows[0].plans, sketches, strict=True):
        assert tuple(int(sample.attrs[0][0]) for sample in samples(sketch)[:3]) == plan.shape
    # By channels each block reads all of the transformed data, which L2 does not keep.
    windows = planned_windows(problem, target, points=6, prepacked=True)
    assert {plan.by_rows for plan in windows[0].plans} == {False, True} and not windows[0].plans[0].by_rows
    other = [replace(windows[0], plans=(replace(windows[0].plans[0], by_rows=True),))]
    own, by_rows = (cycles(winograd_estimate(problem, each, target, 6, True), target) for each in (windows, other))
    assert algorithm.cycles(problem, target) == own > by_rows


def test_windows_of_a_transposed_convolution_have_tiles_of_as_many_vectors() -> None:
    target = Target.parse("x86-64-v4")
    first, *rest = algorithms.get("direct").define(parse_signature(CLASSES), target).windows
    assert rest
    assert all([plan.vectors for plan in each.plans] == [plan.vectors for plan in first.plans] for each in rest)


def _defaults(algorithm: str, signature: str, target: Target) -> list[int]:
    """Return what the default schedule chooses."""
    found = algorithms.get(algorithm)
    sketch = found.sketches(found.define(parse_signature(signature), target), target)[0]
    return [int(sample.attrs[0][int(sketch.trace.decisions[sample])]) for sample in samples(sketch)]


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "neoverse-v1"])
def test_tiles_of_taps_are_those_that_the_schedule_has(name: str) -> None:
    signature = "conv2d-n1-i2048x21x21-o256x21x21-k3x3-s1x1-d12x12-p12x12_12x12-g1-NXC-XIO-f32"
    target = Target.parse(name)
    assert isinstance(target, CpuTarget)
    (window,) = tap_windows(parse_signature(signature), target, 1, prepacked=False)
    vectors = vector_counts(window, target)[0]
    count, _, width, *_ = _defaults("kn2row", signature, target)
    assert (count, width) == (vectors, widths(window, vectors, target)[0])


@pytest.mark.parametrize("blocks", [37, 61, 74, 127])
def test_blocks_of_channels_that_no_small_number_divides_are_shared(blocks: int) -> None:
    """They were one task or two: 488 to 1952 channels took one thread."""
    target = Target.parse("x86-64-v4")
    assert isinstance(target, CpuTarget)
    problem = parse_signature(f"conv2d-n1-i488x14x14-o{32 * blocks}x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32")
    (window,) = plan_windows(direct_windows(problem, target, prepacked=True), target)
    plan = window.plans[0]
    assert plan.chunks[1] >= 8


def test_counts_of_parts() -> None:
    assert part_counts(60, 32, 8) == [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30]
    assert part_counts(61, 32, 8) == [1, 61]
    assert part_counts(74, 32, 8) == [1, 2, 37]
    assert part_counts(7, 32, 8) == [1, 7]
    assert part_counts(1, 32, 8) == [1]


@pytest.mark.parametrize(("outputs", "tile", "together"), [(464, 2, 2), (480, 2, 2), (512, 2, 4), (384, 3, 3)])
def test_vectors_of_the_filter_lie_together_as_tiles_take_them(outputs: int, tile: int, together: int) -> None:
    side = 64 if tile == 3 else 28
    problem = parse_signature(
        f"conv2d-n1-i192x{side}x{side}-o{outputs}x{side}x{side}-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32"
    )
    target = Target.parse("znver5")
    assert isinstance(target, CpuTarget)
    (window,) = plan_windows(direct_windows(problem, target, prepacked=True), target)
    assert (window.plans[0].vectors, vectors_together(window)) == (tile, together)


@pytest.mark.parametrize(
    ("signature", "vectors"),
    [
        ("conv2d-n1-i512x5x5-o256x3x3-k3x3-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16", 4),  # eight leave L2 between its rows
        ("conv2d-n1-i256x5x5-o256x3x3-k3x3-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16", 8),  # eight stay
        ("conv2d-n1-i1024x2x2-o512x2x2-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16", 8),  # fewer stay, and leave gaps
    ],
)
def test_tiles_of_few_pixels_have_as_many_vectors_as_l2_keeps_for_the_next_row(signature: str, vectors: int) -> None:
    assert packed_window(signature, 2).plans[0].vectors == vectors


@pytest.mark.parametrize(
    ("signature", "vectors"),
    [
        ("conv2d-n1-i1024x7x7-o1280x4x4-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32", 1),
        ("conv2d-n1-i512x2x2-o512x2x2-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32", 2),  # eight sums in flight
        ("conv2d-n1-i512x7x7-o512x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32", 0),  # more pixels than a tile has
        ("conv2d-n1-i64x4x4-o64x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32", 0),  # of L2
        ("conv2d-n1-i512x3x3-o512x3x3-k3x3-s1x1-d1x1-p1x1_1x1-g8-NXC-XIO-f32", 0),  # L2 keeps a group's
        ("conv2d-n1-i512x5x5-o512x1x1-k3x3-s4x4-d1x1-p1x1_0x0-g1-NXC-XIO-f32", 0),  # one row, which reads it once
    ],
)
def test_tiles_of_the_whole_image_where_the_filter_is_of_l3(signature: str, vectors: int) -> None:
    window = packed_window(signature)
    assert window.whole_image == (vectors > 0)
    assert vectors in (0, window.plans[0].vectors)


def packed_window(signature: str, vnni_factor: int = 1) -> Window:
    target = Target.parse("znver5")
    assert isinstance(target, CpuTarget)
    windows = direct_windows(parse_signature(signature), target, vnni_factor=vnni_factor, prepacked=True)
    (window,) = plan_windows(windows, target)
    return window


def test_phases_of_a_row_that_meet_no_data_are_not_channels() -> None:
    problem, target = parse_signature("backprop1d-n2-i12x2-o5x3-k3-s3-d1-p4_0-g1-NXC-XIO-f32"), Target.parse("znver5")
    assert algorithms.get("phased").covers(problem, target) == "some phases of a row read no data"
    assert algorithms.get("phased").covers(problem.with_(pads_begin=(3,), out_spatial=(3,)), target) is None


def test_phases_that_are_neighbours_in_a_row_bring_its_line_once() -> None:
    target = CpuTarget.parse("znver5")
    problem = parse_signature("backprop2d-n1-i128x64x64-o64x128x128-k2x2-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-bf16")
    counted = {
        name: algorithms.get(name).estimate(problem, target)["elements.scattered"] for name in ("phased", "direct")
    }
    assert counted["direct"] == 2 * counted["phased"] == 64 * 128 * 128
