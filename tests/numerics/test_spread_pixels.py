"""Tasks copy depthwise data whose pixels share few sets of L1, if that takes less than reading it from L2 again: every choice is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kernels import isa

from tvmconv.algorithms.cpu.direct import direct_windows
from tvmconv.lowering.compiler import Choice, schedule
from tvmconv.lowering.cpu.lowering import lower, workspace_bytes
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

LAYER = "conv2d-n1-i{0}x14x14-o{0}x14x14-k{1}x{1}-s1x1-d1x1-p{2}x{2}_{2}x{2}-g{0}-NXC-XIO-f32"
SPREAD = [
    "conv2d-n2-i1024x7x6-o1024x7x6-k5x5-s1x1-d1x1-p2x2_2x2-g1024-NXC-XIO-f32-bias",
    "conv2d-n1-i1024x19x12-o1024x10x12-k5x5-s2x1-d1x1-p2x2_2x2-g1024-NXC-OIX-f32-bias-relu",
    "conv2d-n1-i2048x7x6-o2048x7x6-k5x5-s1x1-d1x1-p2x2_2x2-g2048-NXC-XIO-bf16-bias",
    "conv1d-n1-i1024x34-o1024x36-k17-s1-d1-p9_9-g1024-NXC-XIO-f32",
    "conv3d-n1-i1024x3x5x5-o1024x3x5x5-k3x3x5-s1x1x1-d1x1x1-p1x1x2_1x1x2-g1024-NXC-XIO-f32",
    "backprop2d-n1-i1024x6x7-o1024x12x14-k8x8-s2x2-d1x1-p3x3_3x3-g1024-NXC-XIO-f32-bias",
]


def is_spread(signature: str, target: str = "znver5") -> bool:
    """Whether a task copies the data of a depthwise problem for a CPU, so that its pixels lie in all sets of L1."""
    cpu = Target.parse(target)
    assert isinstance(cpu, CpuTarget)
    return any(window.spread for window in direct_windows(parse_signature(signature), cpu, across=True))


def test_data_is_copied_where_that_takes_less() -> None:
    assert all(map(is_spread, SPREAD))
    assert is_spread(LAYER.format(512, 7, 3)) and is_spread(LAYER.format(1024, 3, 1))
    # A line between the pixels is there already; few taps; none reads what another read; it is copied anyway; half as many bytes.
    assert not is_spread(LAYER.format(528, 7, 3)) and not is_spread(LAYER.format(256, 3, 1))
    assert not is_spread("conv2d-n1-i1024x14x14-o1024x7x7-k2x2-s2x2-d1x1-p0x0_0x0-g1024-NXC-XIO-f32")
    assert not is_spread(LAYER.format(512, 7, 3).replace("f32", "bf16"))
    assert not is_spread(LAYER.format(512, 7, 3).replace("NXC-XIO", "NCX-OIX"))
    # What a CPU waits for such lines was not measured.
    assert not is_spread(LAYER.format(512, 7, 3), "znver3")


@pytest.mark.parametrize("signature", [pytest.param(each, marks=isa("znver5")) for each in SPREAD])
def test_copied_pixels_are_exact(signature: str, try_sketches: Callable[..., None]) -> None:
    try_sketches(signature, "grouped", "znver5")


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels", [32, 64])
def test_a_task_copies_the_channels_of_its_group(channels: int, stride: int) -> None:
    """Pixels of data share sets of L1; those of the copy of one group's channels lie together."""
    out = 16 // stride
    problem = parse_signature(
        f"conv2d-n1-i1024x16x16-o1024x{out}x{out}-k3x3-s{stride}x{stride}-d1x1-p1x1_1x1-g{1024 // channels}-NXC-XIO-f32"
    )
    definition, scheduled = schedule(problem, Target.parse("znver4"), Choice("direct"))
    data, filter_ = 18 * 18 * channels, 9 * channels * channels
    # Loops stand there twice, by whole rows and cut; a line more for some rows of the filter.
    assert workspace_bytes(lower(scheduled.mod, definition).module) <= 2 * 4 * 1.05 * (data + filter_)
