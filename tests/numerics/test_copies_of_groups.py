"""Copies of planes by groups: the pixels of one group's channels lie together, whatever task copies them, and sums are exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kernels import isa

from tvmconv.lowering.compiler import Choice, schedule
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

VOLUME = "conv3d-n2-i12x4x6x9-o32x4x6x9-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g4-NCX-OIX-{}"
ROW = "conv1d-n2-i16x11-o16x11-k3-s1-d1-p1_1-g2-NCX-OIX-{}"
EXACT = [
    (ROW.format("f32"), "direct", "x86-64-v3"),
    ("conv1d-n1-i64x1-o8x1-k1-s1-d1-p0_0-g2-NCX-OIX-f16", "reduced", "x86-64-v3"),
    ("conv2d-n2-i16x6x7-o16x6x7-k3x3-s1x1-d1x1-p1x1_1x1-g2-NCX-OIX-f32", "kn2row", "x86-64-v3"),
    (VOLUME.format("f16"), "direct", "x86-64-v3"),
    (VOLUME.format("bf16"), "dot", "znver4"),
    (VOLUME.format("u8s8s32-zx3"), "quads", "znver4"),
]


@pytest.mark.parametrize(
    ("signature", "algorithm", "target"), [pytest.param(*each, marks=isa(each[-1])) for each in EXACT]
)
def test_copies_of_groups_are_exact(
    signature: str, algorithm: str, target: str, try_sketches: Callable[..., None]
) -> None:
    try_sketches(signature, algorithm, target)


@pytest.mark.parametrize(("layer", "shape"), [(VOLUME, "(2, 4, 6, 8, 11, 3)"), (ROW, "(2, 2, 13, 8)")])
def test_pixels_of_a_group_lie_together(layer: str, shape: str) -> None:
    _, scheduled = schedule(parse_signature(layer.format("f32")), Target.parse("znver4"), Choice("direct"))
    assert f"alloc_buffer({shape}" in scheduled.mod.script()
