"""Tiles of depthwise rows that share loads, of which the last is shifted to end with the image: every choice is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tvmconv.algorithms.cpu.planar import planar_windows
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

LAYER = "conv2d-n1-i64x{0}x{0}-o64x{0}x{0}-k{1}x{1}-s1x1-d1x1-p{2}x{2}_{2}x{2}-g64-NCX-OIX-f32"
TILED = [
    "conv2d-n1-i24x13x13-o24x13x13-k7x7-s1x1-d1x1-p3x3_3x3-g24-NCX-OIX-f32-bias",
    "conv2d-n2-i8x19x21-o8x19x21-k5x3-s1x1-d1x1-p2x1_2x1-g8-NCX-OIX-bf16-bias-relu",
    "conv2d-n1-i16x39x41-o16x19x20-k5x5-s2x2-d1x1-p1x1_1x1-g16-NCX-XIO-f32",
    "conv2d-n1-i16x25x20-o16x17x16-k5x5-s1x1-d2x1-p0x0_0x0-g16-NCX-OIX-f32-scale",  # read in place
    "conv3d-n1-i8x3x17x17-o8x3x17x17-k3x5x5-s1x1x1-d1x1x1-p1x2x2_1x2x2-g8-NCX-OIX-f32",
]


def row_tile(signature: str, target: str = "x86-64-v4") -> int:
    """Return the rows of a tile that is shifted, 0: tiles divide the rows."""
    cpu = Target.parse(target)
    assert isinstance(cpu, CpuTarget)
    (window,) = planar_windows(parse_signature(signature), cpu, prepacked=False)
    rows, chosen = window.plans[0].rows
    assert window.row_tile == 0 or rows == [chosen] == [window.computed[-1] // window.row_tile]
    return window.row_tile


def test_rows_that_divide_into_no_good_tiles_are_shifted() -> None:
    assert all(map(row_tile, TILED))
    assert row_tile(LAYER.format(13, 7, 3)) == 7 and row_tile(LAYER.format(53, 7, 3))
    # Tiles of 7 divide; one tap across rows; a plane that L1 does not keep; too few tasks.
    assert row_tile(LAYER.format(14, 7, 3)) == 0 and row_tile(LAYER.format(13, 1, 0)) == 0
    assert row_tile(LAYER.format(101, 7, 3)) == 0
    assert row_tile("conv2d-n1-i4x13x13-o4x13x13-k7x7-s1x1-d1x1-p3x3_3x3-g4-NCX-OIX-f32") == 0


@pytest.mark.parametrize("signature", TILED)
def test_shifted_tiles_are_exact(signature: str, try_sketches: Callable[..., None]) -> None:
    try_sketches(signature, "planar")
