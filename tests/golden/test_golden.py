"""The schedule of one problem of each kind and the IR that it makes, as text: a change of either shows as a diff.

``make golden`` (or ``pytest tests/golden --update-golden``) writes the files again.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod
from pathlib import Path

import pytest

from tvmconv.algorithms.definition import is_tiny
from tvmconv.algorithms.table import ALGORITHMS
from tvmconv.lowering.compiler import Choice, default_choice, plain_choice, schedule
from tvmconv.lowering.cpu.lowering import lower
from tvmconv.lowering.schedule_text import schedule_text
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

FILES = Path(__file__).parent / "files"
CASES = {
    "direct": "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "pointwise": "conv2d-n2-i256x14x14-o64x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
    "deep": "conv2d-n1-i1024x21x21-o256x21x21-k3x3-s1x1-d2x2-p2x2_2x2-g1-NXC-XIO-f32",
    "kn2row": "conv2d-n1-i2048x21x21-o256x21x21-k3x3-s1x1-d18x18-p18x18_18x18-g1-NXC-XIO-f32",
    "half_vectors": "conv2d-n1-i8x21x21-o40x21x21-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "strided_crowded": "conv2d-n1-i512x28x28-o1024x14x14-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
    "planar_copied": "conv2d-n1-i16x20x20-o48x20x20-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32",
    "planar_rows": "conv2d-n1-i3x224x224-o64x224x224-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32",
    "planar_pointwise": "conv2d-n1-i64x28x28-o32x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
    "planar_panels": "conv2d-n1-i64x27x27-o64x27x27-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
    "planar_depthwise": "conv2d-n1-i16x64x64-o16x64x64-k3x3-s1x1-d1x1-p1x1_1x1-g16-NCX-OIX-f32-bias",
    "transposed_data": "conv2d-n1-i8x18x22-o8x9x11-k3x3-s2x2-d1x1-p1x1_0x0-g1-NCX-OIX-f32-bias",
    "interleaved": "backprop2d-n1-i16x32x32-o32x64x64-k2x2-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias",
    "few_outputs": "conv2d-n1-i32x32x32-o3x32x32-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "few_channels": "conv2d-n1-i3x32x32-o3x32x32-k9x9-s1x1-d1x1-p4x4_4x4-g1-NXC-XIO-f32",
    "dilated": "conv2d-n1-i32x33x33-o32x33x33-k3x3-s1x1-d12x12-p12x12_12x12-g1-NXC-XIO-f32",
    "bf16_left_over_lanes": "conv1d-n1-i8x50-o20x50-k3-s1-d2-p2_2-g1-NXC-XIO-bf16-bias",
    "depthwise": "conv2d-n1-i32x28x28-o32x14x14-k3x3-s2x2-d1x1-p1x1_0x0-g32-NXC-XIO-f32",
    "small_groups": "conv2d-n1-i48x14x14-o48x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g16-NXC-XIO-f16",
    "shuffled": "conv2d-n1-i32x14x14-o32x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g8-NXC-XIO-f32",
    "shuffled_strided": "conv2d-n1-i32x14x14-o32x7x7-k3x3-s2x2-d1x1-p1x1_0x0-g8-NXC-XIO-f32",
    "backprop_phases": "backprop2d-n1-i32x14x14-o16x28x28-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32",
    "backprop_holes": "backprop1d-n1-i16x10-o16x28-k1-s3-d1-p0_0-g1-NXC-XIO-f32-bias",
    "phased": "backprop1d-n1-i66x40-o1x1376-k128-s32-d1-p0_0-g1-NXC-XIO-f32-bias",
    "phased_planes": "backprop1d-n1-i66x40-o1x1344-k120-s32-d1-p12_12-g1-NCX-OIX-f32",
    "tall": "conv2d-n1-i32x90x2-o64x30x2-k5x1-s3x1-d1x1-p2x0_0x0-g1-NXC-XIO-f32-bias",
    "depthwise_long": "conv2d-n1-i32x40x40-o32x40x40-k31x31-s1x1-d1x1-p15x15_15x15-g32-NXC-XIO-f32",
    "depthwise_whole_rows": "conv2d-n1-i32x14x14-o32x14x14-k27x27-s1x1-d1x1-p13x13_13x13-g32-NCX-OIX-f32",
    "volume": "conv3d-n1-i8x6x8x8-o16x6x8x8-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-f32",
    "winograd4": "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "epilogue": "conv2d-n1-i64x56x56-o64x56x56-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias-add-silu",
    "winograd2": "conv2d-n1-i32x7x9-o128x7x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "winograd4_pieces": "conv1d-n1-i32x100-o32x100-k7-s1-d3-p9_9-g1-NXC-XIO-f32",
    "winograd4_planes": "conv2d-n1-i16x18x32-o16x18x32-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias",
    "filter_by_parts": "conv2d-n1-i1024x7x7-o1280x4x4-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "filter_in_place_by_parts": "conv1d-n1-i4096x4-o1280x4-k1-s1-d1-p0_0-g1-NXC-XIO-f32",
    "inner": "backprop2d-n1-i128x4x4-o64x8x8-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "col2im": "backprop2d-n1-i256x4x4-o64x8x8-k5x5-s2x2-d1x1-p2x2_1x1-g1-NCX-OIX-f32-bias",
    "taps_by_squares": "backprop2d-n1-i512x4x4-o256x8x8-k4x4-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-f32",
    "inner_rows": "conv2d-n1-i1024x7x7-o1280x4x4-k3x3-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias",
    "constant": "conv2d-n1-i0x4x4-o8x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
}
# Where the target has AVX512-BF16.
DOT = {
    "bf16_dot": "conv2d-n1-i64x14x14-o32x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias",
    "bf16_dilated": "conv2d-n1-i32x33x33-o32x33x33-k3x3-s1x1-d12x12-p12x12_12x12-g1-NXC-XIO-bf16",
    "bf16_shuffled": "conv2d-n1-i32x14x14-o32x7x7-k3x3-s2x2-d1x1-p1x1_0x0-g4-NXC-XIO-bf16",
    "inner_dot": "conv1d-n1-i768x4-o3072x4-k1-s1-d1-p0_0-g1-NXC-OIX-bf16",
    "kn2row_dot": "conv2d-n1-i128x13x13-o64x13x13-k3x3-s1x1-d6x6-p6x6_6x6-g1-NXC-XIO-bf16",
}
# Where it has BFMMLA.
MATRICES = {
    "mmla": "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias",
    "mmla_strided": "conv2d-n1-i66x27x27-o40x14x14-k3x3-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-bf16",
}
# Of integers: by pairs, also of taps and of Winograd's tiles, and where it has VNNI by quads.
INTEGERS = {
    "integers": "conv2d-n1-i64x14x14-o32x7x7-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-u8s8u8-zx3-bias-scale-q_0.1_3",
    "integers_taps": "conv2d-n1-i32x14x14-o32x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-u8s8u8-zx3-bias-scale-q_0.1_3",
    "integers_tiles": "conv2d-n1-i64x14x14-o32x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-zx3-bias-scale-q_0.1_3",
}
QUADS = {
    "quads": "conv2d-n1-i64x14x14-o32x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-bias-scale-q_0.1_3",
}
# Where it has AMX.
TILES = {
    "amx": "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16-bias",
    "amx_in_place": "conv2d-n1-i256x14x14-o80x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16",
    "amx_phases": "backprop2d-n1-i66x13x13-o48x26x26-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-bf16",
    "amx_halves": "conv2d-n1-i64x14x14-o64x7x7-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32-bias",
    "winograd2_halves": "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "winograd2_halves_planes": "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32-bias",
    "amx_exact": "conv2d-n1-i64x14x14-o64x7x7-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32-bias",
    "amx_halves_planes": "conv2d-n1-i64x14x14-o64x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias",
}


# Nothing is summed, or in a cache: a task by channels adds up parts of the sum.
UNACCUMULATED = ("constant", "winograd2")


# What is never the default, or not in strict math, is asked for by name: the longest that a case begins with.
NAMED = sorted(
    (
        each.name
        for each in ALGORITHMS
        if each.kind == "cpu" and (each.numerical_class == "transform" or not each.is_default)
    ),
    key=len,
    reverse=True,
)


def scheduled_text(name: str, target: str) -> str:
    signature = (CASES | DOT | MATRICES | INTEGERS | QUADS | TILES)[name]
    problem, cpu = parse_signature(signature), Target.parse(target)
    named = next((each for each in NAMED if name.startswith(each)), None)
    choice = Choice(named) if named else plain_choice(problem, cpu, default_choice(problem, cpu, "strict"))
    definition, scheduled = schedule(problem, cpu, choice)
    # The next pass says of each loop how many tasks it has.
    script = lower(scheduled.mod, definition, last="cuts").module.script()
    # Colours are for terminals, and two buffers' attributes are the same in every allocation.
    script = re.sub(r"\x1b\[[0-9;]*m", "", script)
    script = re.sub(r', annotations=\{"buffer_allocated_addr": \[\], "buffer_data_alignment": 64\}', "", script)
    return f"# {signature} for {target}\n\n{schedule_text(definition, scheduled)}\n\n{script}\n"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *product(CASES, ["x86-64-v3", "x86-64-v4"]),
        *product(DOT, ["znver4"]),
        *product(MATRICES, ["neoverse-v1"]),
        *product(INTEGERS, ["x86-64-v3"]),
        *product(QUADS, ["cascadelake", "alderlake"]),
        *(pytest.param(name, "sapphirerapids", marks=pytest.mark.smoke) for name in TILES),
    ],
)
def test_scheduled_ir(name: str, target: str, request: pytest.FixtureRequest) -> None:
    path = FILES / f"{name}.{target}.txt"
    text = scheduled_text(name, target)
    if request.config.getoption("--update-golden"):
        path.write_text(text)
    assert path.exists(), f"{path.name} is missing; write it with: make golden"
    assert text == path.read_text(), f"{path.name} differs; if the change is meant: make golden"


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", [name for name in CASES if name not in UNACCUMULATED])
def test_default_is_parallel_vectorized_and_tiled(name: str, target: str) -> None:
    text = (FILES / f"{name}.{target}.txt").read_text()
    # The tiniest problems are done before a second thread has started.
    assert ("T.parallel" in text) == (not is_tiny(parse_signature(CASES[name])))
    assert "T.vectorized" in text
    accumulators = re.search(r"acc0?(?:_rf)?_local = T\.alloc_local\(\(([\d, ]+)\)", text)
    assert accumulators, "the sum is not kept in registers"
    *outer, lanes = map(int, accumulators[1].split(","))
    x = prod(outer)
    registers = x * lanes * 32 // Target.parse(target).vector_bits
    assert registers >= 4, f"a tile of {x} x {lanes} hides no latency"
