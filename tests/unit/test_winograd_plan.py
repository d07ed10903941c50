"""The tile of registers that Winograd takes by default."""

import pytest

from tvmconv.algorithms.cpu.transforms.winograd_plan import (
    best_part,
    best_structure,
    cycles_by_channels,
    cycles_by_rows,
    image_counts,
    register_tiles,
)
from tvmconv.algorithms.cpu.transforms.winograd_structures import copied_rows
from tvmconv.algorithms.cpu.transforms.winograd_tiles import tiles_of
from tvmconv.algorithms.cpu.windows.plan import Shape
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target


@pytest.mark.parametrize(
    # Measured on one Zen 3 core in microseconds, this and 8 tiles by 1 vector: 1094 and 1437; 1720 and 2264; 2118 and 2435.
    ("channels", "size", "points"),
    [(256, 14, 6), (512, 7, 4), (128, 32, 6)],
)
def test_two_vectors_where_registers_are_few(channels: int, size: int, points: int) -> None:
    problem = parse_signature(
        f"conv2d-n1-i{channels}x{size}x{size}-o{channels}x{size}x{size}-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
    )
    target = Target.parse("znver3")
    assert isinstance(target, CpuTarget)
    (tiles,) = tiles_of(problem, target, points)
    best = min(register_tiles(tiles, target), key=lambda shape: cycles_by_channels(tiles, shape, target))
    assert best == Shape(vectors=2, rows=4, columns=1)


@pytest.mark.parametrize(
    # All of data transformed before, and what this takes, on one core of a Zen 4 in milliseconds: 24.1 and 16.5; 9.9 and 5.5.
    ("channels", "size"),
    [(96, (32, 32, 32)), (32, (31, 29, 33))],
)
def test_a_task_transforms_images_for_several_outputs(channels: int, size: tuple[int, int, int]) -> None:
    spatial = "x".join(map(str, size))
    problem = parse_signature(
        f"conv3d-n1-i{channels}x{spatial}-o32x{spatial}-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-bf16"
    )
    target = Target.parse("x86-64-v4")
    assert isinstance(target, CpuTarget)
    (tiles,) = tiles_of(problem, target, 6)
    best = min(register_tiles(tiles, target), key=lambda shape: cycles_by_rows(tiles, shape, target))
    assert best_part(tiles, best, target).images >= 8


def test_one_tap_shares_no_images() -> None:
    problem = parse_signature("conv3d-n1-i64x8x56x56-o64x8x56x56-k1x3x3-s1x1x1-d1x1x1-p0x1x1_0x1x1-g1-NXC-XIO-f32-bias")
    target = Target.parse("x86-64-v4")
    assert isinstance(target, CpuTarget)
    (tiles,) = tiles_of(problem, target, 6)
    assert image_counts(tiles) == [1]


@pytest.mark.parametrize(
    # Measured on one Zen 5 core in microseconds, the best by rows and by channels: 1310 and 1533; 83 and 101; 91 and 62.
    ("signature", "by_rows"),
    [
        ("conv2d-n1-i256x32x32-o256x32x32-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32", True),
        ("conv2d-n1-i512x14x14-o512x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-f32", True),
        ("conv2d-n1-i32x7x7-o1024x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32", False),
    ],
)
def test_structures_of_two_ports_are_compared(signature: str, by_rows: bool) -> None:
    target = Target.parse("znver5")
    assert isinstance(target, CpuTarget)
    (tiles,) = tiles_of(parse_signature(signature), target, 6)
    assert best_structure(tiles, target)[0] == by_rows


def test_a_task_of_interleaved_tiles_copies_rows_for_several() -> None:
    problem = parse_signature("conv2d-n1-i64x80x80-o64x80x80-k3x3-s1x1-d4x4-p4x4_4x4-g1-NXC-XIO-f32")
    target = Target.parse("znver5")
    assert isinstance(target, CpuTarget)
    (tiles,) = tiles_of(problem, target, 6)
    # Tiles of one row leave out three of four rows that they span: 694 us where a task has one row of them, 600 with five.
    assert copied_rows(tiles, 1) == 21 and copied_rows(tiles, 4) == 24 and copied_rows(tiles, 5) == 40
