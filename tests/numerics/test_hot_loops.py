"""The hot loop of each algorithm's default schedule: its register tile is the one that the space means, and nothing spills.

Kernels are compiled as they are measured, for CPUs that this machine need not be.
"""

from __future__ import annotations

import pytest
import tvm

from tvmconv.isa.hot_loop import HotLoop
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.compiler import Choice, schedule
from tvmconv.lowering.cpu.kernels import generate
from tvmconv.lowering.cpu.lowering import lower
from tvmconv.signature import parse_signature
from tvmconv.targets.target import CpuTarget, Target

LONG = "backprop1d-n1-i66x56-o1x2832-k192-s48-d1-p0_0-g1-NXC-XIO-f32"
LONG_DOT = LONG.replace("f32", "bf16")
DENSE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
FEW_INPUTS = "conv2d-n1-i8x21x21-o40x21x21-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
LEFT_OVER = "conv2d-n1-i192x17x17-o192x17x17-k7x1-s1x1-d1x1-p3x0_3x0-g1-NCX-OIX-f32"
THREES = "conv2d-n1-i448x28x28-o480x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32"
DEEP = "conv2d-n1-i256x28x28-o256x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
WIDE = "conv2d-n1-i32x7x9-o128x7x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
DILATED = "conv2d-n1-i256x13x13-o64x13x13-k3x3-s1x1-d6x6-p6x6_6x6-g1-NXC-XIO-f32"
STRIDED = "conv2d-n1-i128x56x56-o128x28x28-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
FEW_STRIDED = "conv2d-n1-i32x112x112-o32x56x56-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32"
FEW_OUTPUTS = "conv2d-n1-i32x32x32-o3x32x32-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
FEW_TRANSPOSED = "backprop2d-n1-i64x32x32-o3x64x64-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
PLANES = "conv2d-n1-i64x28x28-o32x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32"
DEPTHWISE = "conv2d-n1-i64x112x112-o64x112x112-k3x3-s1x1-d1x1-p1x1_1x1-g64-NCX-OIX-f32"
MANY_TAPS = "conv2d-n1-i64x112x112-o64x112x112-k5x5-s1x1-d1x1-p2x2_2x2-g64-NCX-OIX-f32"
DEPTHWISE_LAST = "conv2d-n1-i128x56x56-o128x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g128-NXC-XIO-f32"
SMALL_GROUPS = "conv2d-n1-i48x14x14-o48x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g16-NXC-XIO-f16"
SHUFFLED = "conv2d-n1-i32x14x14-o32x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g8-NXC-XIO-f32"
TAPS = "conv1d-n1-i1x4000-o80x3750-k251-s1-d1-p0_0-g1-NXC-XIO-f32"
DOT = "conv2d-n1-i64x14x14-o32x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16"
SHUFFLED_DOT = "conv2d-n1-i32x14x14-o32x7x7-k3x3-s2x2-d1x1-p1x1_0x0-g4-NXC-XIO-bf16"
DILATED_DOT = "conv2d-n1-i128x13x13-o64x13x13-k3x3-s1x1-d6x6-p6x6_6x6-g1-NXC-XIO-bf16"
ROWS_OF_TAPS = "backprop2d-n1-i1024x4x4-o512x8x8-k5x5-s2x2-d1x1-p2x2_1x1-g1-NCX-OIX-f32"
TOKENS = "conv1d-n1-i768x16-o3072x16-k1-s1-d1-p0_0-g1-NXC-OIX-bf16"
INTEGERS = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-zx3-scale-q_0.1_3"
DEEP_DOT = "conv2d-n1-i1024x14x14-o64x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16"


def hot(algorithm: str, target: str, signature: str) -> HotLoop:
    """Return the hot loop of an algorithm's default schedule, for prepacked filters."""
    problem, cpu = parse_signature(signature), Target.parse(target)
    assert isinstance(cpu, CpuTarget)
    definition, scheduled = schedule(problem, cpu, Choice(algorithm), EntryPoints.PACKED)
    lowered = lower(scheduled.mod, definition, EntryPoints.PACKED)
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        found = cpu.isa.hot_loop(generate(lowered.module, cpu).mod.inspect_source("asm"))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("algorithm", "target", "signature", "tile", "steps"),
    [
        # Pixels by vectors; steps of the sum in one pass.
        ("direct", "x86-64-v3", DENSE, (3, 4), 4),
        ("direct", "znver4", DENSE, (14, 2), 4),
        ("direct", "znver5", THREES, (14, 2), 4),  # not three vectors of the filter together
        ("direct", "znver5", FEW_STRIDED, (14, 2), 4),  # its steps stay apart, else a sum was stored and loaded in each
        ("direct", "x86-64-v3", LEFT_OVER, (6, 2), 4),  # the tile is stored element by element
        ("direct", "x86-64-v3", FEW_INPUTS, (2, 5), 8),  # LLVM makes two steps one pass
        ("direct", "x86-64-v3", TAPS, (6, 2), 1),
        ("plain", "x86-64-v3", DENSE, (4, 2), 2),  # LLVM makes two steps one pass
        ("kn2row", "x86-64-v3", DILATED, (5, 2), 4),
        ("kn2row", "znver5", DILATED, (7, 2), 4),
        ("kn2row_dot", "znver4", DILATED_DOT, (7, 2), 4),
        ("kn2row_dot", "znver5", DILATED_DOT, (7, 2), 4),
        ("grouped", "x86-64-v3", SMALL_GROUPS, (7, 1), 3 * 3),  # 3 channels a group, 3 taps of a row
        ("winograd2", "x86-64-v4", WIDE, (2 * 10, 1), 4),
        ("winograd4", "x86-64-v4", DENSE, (14, 2), 4),
        ("dot", "znver4", DOT, (14, 2), 4),
        ("phased", "x86-64-v4", LONG, (6, 3), 3),
        ("phased_dot", "znver4", LONG_DOT, (6, 3), 3),
        ("amx", "sapphirerapids", DEEP_DOT, (2, 2), 1),  # tiles
        (
            "amx_halves",
            "sapphirerapids",
            STRIDED,
            (2, 2),
            3 * 4 * 3,
        ),  # three products, 4 steps of channels, 3 taps of a row
        ("amx_exact", "sapphirerapids", STRIDED, (2, 2), 6 * 4),  # six products, 4 steps of channels
        ("winograd2_halves", "sapphirerapids", DEEP, (2, 2), 3),  # three products
        # Pixels by output channels.
        ("reduced", "x86-64-v3", FEW_OUTPUTS, (2, 3), 4 * 3),  # 3 taps of a row
        ("reduced", "x86-64-v3", FEW_TRANSPOSED, (4, 3), 4 * 2),  # LLVM makes two steps one pass
        ("inner_dot", "znver4", TOKENS, (4, 6), 4),
        ("col2im", "znver4", ROWS_OF_TAPS, (16, 1), 4),
        # Vectors of a row by output channels, or by rows.
        ("planar", "x86-64-v3", PLANES, (3, 4), 1),
        ("planar", "x86-64-v3", DEPTHWISE, (1, 4), 9),
        # With 32 registers of 128 bits.
        ("direct", "neoverse-n1", DENSE, (8, 2), 4),
        ("grouped", "neoverse-v2", DEPTHWISE_LAST, (7, 2), 3 * 3),
        ("planar", "neoverse-n1", PLANES, (3, 8), 1),
        ("dot", "neoverse-v1", DOT, (7, 2), 4),
        ("mmla", "neoverse-v1", DENSE.replace("f32", "bf16"), (6, 4), 4),  # pairs of pixels by pairs of channels
    ],
)
def test_the_tile_is_in_registers(
    algorithm: str, target: str, signature: str, tile: tuple[int, int], steps: int
) -> None:
    found = hot(algorithm, target, signature)
    assert (found.sums, found.multiply_adds) == (tile[0] * tile[1], tile[0] * tile[1] * steps)
    assert (found.spill_stores, found.spill_loads) == (0, 0)


@pytest.mark.parametrize(
    ("algorithm", "target", "products"),
    [
        ("dot", "x86-64-v3", 12 * 4),
        ("dot", "x86-64-v4", 28 * 4),
        ("winograd2_integers", "x86-64-v3", 8 * 4),
        ("winograd4_integers", "znver4", 28 * 4),
    ],
)
def test_sums_of_integers_leave_a_register_to_products(algorithm: str, target: str, products: int) -> None:
    found = hot(algorithm, target, INTEGERS)
    assert (found.multiply_adds, found.spill_stores, found.spill_loads) == (products, 0, 0)


SPILLING = [
    ("grouped", "x86-64-v3", SHUFFLED, 8, "LLVM keeps data that neighbouring outputs share"),
    ("grouped_dot", "znver4", SHUFFLED_DOT, 14, "LLVM loads the filter of all taps before the loop"),
    ("planar", "znver4", MANY_TAPS, 8, "LLVM loads the filter of all taps before the loop over a row's tiles"),
]


# One that no longer spills belongs into the list above.
@pytest.mark.parametrize(
    ("algorithm", "target", "signature", "sums"),
    [
        pytest.param(*case, marks=pytest.mark.xfail(strict=True, raises=AssertionError, reason=why))
        for *case, why in SPILLING
    ],
)
def test_these_spill(algorithm: str, target: str, signature: str, sums: int) -> None:
    found = hot(algorithm, target, signature)
    if found.sums != sums:
        pytest.fail(f"it has {found.sums} sums", pytrace=False)
    assert (found.spill_stores, found.spill_loads) == (0, 0)


def test_where_a_pixel_lies_is_computed_before_the_sum() -> None:
    """Of 125 pairs one is multiplied a step: a division for each pixel took as long as its products."""
    found = hot("kn2row_dot", "znver5", "conv1d-n1-i250x90-o256x90-k9-s1-d1-p4_4-g1-NXC-XIO-bf16")
    assert not any("div" in line for line in found.lines)
