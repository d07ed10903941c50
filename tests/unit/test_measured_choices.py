"""Algorithms that won contests on a Zen 4, of classes of layers that no other test decides."""

from __future__ import annotations

import pytest

from tvmconv.algorithms.cpu.amx import tile_windows
from tvmconv.algorithms.table import applicable
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target


@pytest.mark.parametrize(
    ("layer", "best"),
    [
        # Transposed, with dilation.
        ("backprop2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d2x2-p2x2_2x2-g1-NCX-OIX-f32", "winograd4"),
        ("backprop2d-n1-i128x28x28-o128x28x28-k3x3-s1x1-d4x4-p4x4_4x4-g1-NCX-OIX-f32", "winograd4"),
        # Depthwise volumes, with taps along one axis.
        ("conv3d-n1-i64x16x56x56-o64x16x56x56-k3x1x1-s1x1x1-d1x1x1-p1x0x0_1x0x0-g64-NCX-OIX-f32", "planar"),
        ("conv3d-n1-i32x16x32x32-o32x16x32x32-k1x7x1-s1x1x1-d1x1x1-p0x3x0_0x3x0-g32-NCX-OIX-f32", "planar"),
        ("conv3d-n1-i48x16x32x32-o48x16x32x32-k1x1x7-s1x1x1-d1x1x1-p0x0x3_0x0x3-g48-NCX-OIX-f32", "planar"),
        # Volumes of groups of few pairs of channels.
        ("conv3d-n1-i64x16x28x28-o64x16x28x28-k5x5x5-s1x1x1-d1x1x1-p2x2x2_2x2x2-g16-NCX-OIX-bf16", "dot"),
        # Few outputs: a filter beyond L1, and copies of padded data.
        ("conv2d-n1-i128x19x28-o4x10x11-k7x7-s2x2-d1x1-p3x0_3x0-g1-NXC-XIO-f32", "direct"),
        ("conv2d-n1-i64x40x40-o8x20x19-k3x3-s2x2-d1x1-p1x0_1x0-g1-NXC-XIO-f32", "direct"),
        # Taps that meet few pixels, and one block of channels, which one thread computes.
        ("conv2d-n1-i96x9x19-o6x9x19-k5x5-s1x1-d4x4-p8x8_8x8-g1-NXC-XIO-f32", "direct"),
        ("conv2d-n8-i20x5x3-o320x5x3-k5x5-s1x1-d2x2-p4x4_4x4-g1-NXC-XIO-f32", "direct"),
        ("conv2d-n1-i256x8x1-o512x8x1-k64x1-s1x1-d1x1-p31x0_32x0-g1-NXC-XIO-bf16", "kn2row_dot"),
        ("conv3d-n1-i40x12x12x12-o3x12x12x12-k7x7x7-s1x1x1-d2x2x2-p6x6x6_6x6x6-g1-NXC-XIO-f32", "reduced"),
        ("conv3d-n1-i40x12x12x12-o3x12x12x12-k7x7x7-s1x1x1-d2x2x2-p6x6x6_6x6x6-g1-NXC-XIO-bf16", "reduced"),
        # A row whose tasks copy their parts, and planes beyond L2 that each tile of them reads.
        ("conv1d-n1-i256x8000-o32x4000-k5-s2-d1-p2_1-g1-NCX-OIX-f32", "direct"),
        # A transposed filter that no cache keeps.
        ("backprop2d-n1-i256x21x8-o192x27x8-k7x7-s1x1-d1x1-p0x3_0x3-g1-NXC-XIO-f32", "kn2row"),
    ],
)
def test_the_fastest_is_chosen(layer: str, best: str) -> None:
    assert applicable(parse_signature(layer), Target.parse("znver4"))[0].name == best


def test_rows_of_padding_are_not_counted_as_copied() -> None:
    """Two rows of data beside sixteen of padding: 5.4 us, and 15.5 tap by tap."""
    layer = "conv2d-n4-i128x2x4-o256x2x4-k5x7-s1x1-d4x4-p8x12_8x12-g16-NCX-OIX-bf16"
    assert applicable(parse_signature(layer), Target.parse("x86-64-v3"))[0].name == "direct"


@pytest.mark.parametrize(
    ("layer", "most"),
    [
        # On an Emerald Rapids, (tiles of data, of outputs): 42 us by (1, 3), by (3, 1) 63; 60 by (1, 4), by (4, 1) 115; 77 by (1, 3), by (3, 1) 162.
        ("conv2d-n1-i16x56x56-o48x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16", 1),
        ("conv2d-n1-i3x112x112-o64x56x56-k7x7-s2x2-d1x1-p3x3_2x2-g1-NXC-XIO-bf16", 1),
        ("conv2d-n1-i40x40x40-o96x40x40-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16", 1),
        # 135 us by (2, 2), by (4, 1) 226; 9.0 by (2, 2), by (4, 1) 11.4, in place.
        ("conv2d-n1-i48x35x35-o64x35x35-k5x5-s1x1-d1x1-p2x2_2x2-g1-NXC-XIO-bf16", 2),
        ("conv2d-n1-i240x14x14-o80x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16", 2),
    ],
)
def test_few_tiles_of_data_are_loaded_where_their_rows_cross_lines(layer: str, most: int) -> None:
    (window,) = tile_windows(parse_signature(layer), Target.parse("emeraldrapids"))
    assert window.crossing_rows > 0 and window.block[0] <= most


def test_rows_of_whole_lines_do_not_cross_lines() -> None:
    layer = "conv2d-n1-i128x28x28-o96x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16"
    (window,) = tile_windows(parse_signature(layer), Target.parse("emeraldrapids"))
    assert window.crossing_rows == 0
