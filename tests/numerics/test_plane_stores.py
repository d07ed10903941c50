"""Tiles of pixels stored to planes that share few sets of L1, or of left-over channels: every choice is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kernels import isa
from tvm.script import tirx as T

from tvmconv.algorithms.cpu.model.counts import lines_evict
from tvmconv.lowering.cpu.rewrites.transposing import transpose

# By the algorithm that transposes sums: planes of 4 KiB, with rows of 8, 10, 16 and 12 pixels a tile.
EVICTING = {
    "conv2d-n1-i24x32x32-o40x32x32-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias-relu": "direct",
    "conv2d-n2-i5x40x20-o48x64x10-k3x3-s1x2-d1x1-p13x1_13x0-g1-NCX-OIX-f32-scale": "direct",
    "conv1d-n1-i16x1024-o64x1024-k3-s1-d1-p1_1-g2-NCX-OIX-f32-bias": "direct",
    "conv2d-n1-i32x64x32-o64x64x32-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias": "dot",
    "backprop2d-n1-i16x32x16-o32x64x32-k4x4-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias": "direct",
}

# Channels that are no whole vectors: the last one is shifted.
LEFT_OVER = {
    "conv2d-n1-i24x9x11-o40x9x11-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias-relu": "direct",
    "conv2d-n2-i40x9x9-o54x5x5-k3x3-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-bf16-bias-add": "dot",
    "backprop2d-n1-i16x9x5-o36x18x10-k4x4-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias": "direct",
    "conv2d-n1-i18x8x12-o18x8x12-k3x3-s1x1-d1x1-p1x1_1x1-g18-NCX-OIX-f32": "grouped",
    "conv2d-n1-i20x12x12-o40x12x12-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias": "winograd4",
}
# Rows of a few pixels, rounded to 8 bits by vectors of channels.
NARROW = {
    "conv2d-n1-i32x9x7-o48x9x2-k3x3-s1x4-d1x1-p1x0_1x0-g1-NCX-OIX-u8s8u8-zx128-bias-scale-relu-q_0.1_7": "quads",
    "conv1d-n2-i32x6-o64x6-k3-s1-d1-p1_1-g1-NCX-OIX-s8s8s8-bias-scale-add-q_0.1_-7": "dot",
}
KERNELS = EVICTING | LEFT_OVER | NARROW


def test_lines_evict_each_other_in_few_sets() -> None:
    # 8 lines fit one set, 16 two, and all of others.
    assert [lines_evict(4096, count) for count in (8, 9)] == [False, True]
    assert [lines_evict(6144, count) for count in (16, 17)] == [False, True]
    assert not lines_evict(4 * 28 * 28, 64)


def test_parts_of_a_line_are_stored_together_where_planes_share_sets() -> None:
    def loops(plane: int) -> int:
        @T.prim_func(private=True, s_tir=True)
        def before(output: T.Buffer((16 * plane,), "float32")) -> None:
            tile = T.alloc_buffer((8, 16), scope="local")
            for c in T.serial(16, annotations={"tvmconv.transpose": "to_planes"}):
                for x in range(8):
                    output[c * plane + x] = tile[x, c]

        return str(transpose(before.body).script()).count("for lane in")

    assert loops(1024) == 1  # each lane's eight pixels
    assert loops(784) == 2


@pytest.mark.parametrize("signature", [pytest.param(each, marks=isa("znver4")) for each in KERNELS])
def test_stores_are_exact(signature: str, try_sketches: Callable[..., None]) -> None:
    try_sketches(signature, KERNELS[signature], "znver4")
