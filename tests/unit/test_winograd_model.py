"""The tile of registers that Winograd takes by default."""

import pytest

from schedules.cpu.winograd_model import Shape, cycles_by_channels, register_tiles
from tvmconv.algorithms.cpu.winograd_tiles import tiles_of
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
