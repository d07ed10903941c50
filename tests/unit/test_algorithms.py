"""Which algorithms are applicable, in which order, and why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvmconv.algorithms.axes import convolution_axes
from tvmconv.algorithms.cpu.direct import direct_windows
from tvmconv.algorithms.cpu.windows.tile import best_tile
from tvmconv.algorithms.table import ALGORITHMS, applicable, get
from tvmconv.errors import TvmconvError
from tvmconv.isa.x86 import ISA as X86
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.cuda import CudaTarget
from tvmconv.targets.target import CpuTarget, Target

V4 = CpuTarget("x86-64-v4", ("avx2", "avx512f", "f16c", "fma"), "x86-64-v4", isa=X86)
LARGE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"


def test_the_least_estimate_comes_first() -> None:
    assert [each.name for each in applicable(parse_signature(LARGE), V4)] == [
        "winograd4",
        "winograd2",
        "direct",
        "plain",
    ]
    small = parse_signature("conv2d-n1-i64x2x2-o64x2x2-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    assert applicable(small, V4)[0].name == "direct"


@pytest.mark.parametrize(
    "signature",
    [
        LARGE,
        LARGE.replace("n1", "n0"),
        LARGE.replace("i64", "i0"),
        LARGE.replace("k3x3", "k0x3").replace("o64x56x56", "o64x59x56"),
    ],
)
def test_the_plain_algorithm_covers_everything_and_is_the_last(signature: str) -> None:
    found = applicable(parse_signature(signature), V4)
    assert found[-1].name == "plain" and len(found) > 1


def test_strict_math_leaves_transforms_out() -> None:
    assert [each.name for each in applicable(parse_signature(LARGE), V4, "strict")] == ["direct", "plain"]
    assert {each.numerical_class for each in ALGORITHMS} == {"exact", "tf32", "transform"}


def test_tf32_is_for_those_who_ask() -> None:
    problem, gpu = parse_signature(LARGE), CudaTarget.parse("cuda:sm_90")
    assert applicable(problem, gpu, "tf32")[0].name == "tensorcore_tf32"
    for math in ("default", "strict"):
        assert all(each.numerical_class == "exact" for each in applicable(problem, gpu, math))
    assert applicable(problem, V4, "tf32") == applicable(problem, V4)


@pytest.mark.parametrize("math", ["fast", "", "STRICT", None])
def test_another_math_is_refused(math: str) -> None:
    with pytest.raises(TvmconvError, match="allowed: default"):
        applicable(parse_signature(LARGE), V4, math)


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        (LARGE.replace("k3x3", "k15x15").replace("p1x1_1x1", "p7x7_7x7"), "25 pieces"),
        (LARGE.replace("k3x3", "k1x1").replace("p1x1_1x1", "p0x0_0x0"), "one tap"),
        ("backprop2d-n1-i256x16x16-o128x32x32-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32", "one tap"),
        (LARGE.replace("o64x56x56", "o64x28x28").replace("s1x1", "s2x2").replace("_1x1", "_0x0"), "stride 1"),
        (LARGE.replace("g1", "g32"), "2 output channels per group"),
        (LARGE.replace("i64", "i0"), "does not depend on data"),
    ],
)
def test_winograd_says_why_not(signature: str, reason: str) -> None:
    answer = get("winograd4").covers(parse_signature(signature), V4)
    assert answer is not None and reason in answer


@pytest.mark.parametrize(
    "signature",
    [
        # Most taps meet padding, which direct skips.
        "backprop2d-n1-i100x2x2-o512x5x5-k4x4-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
        LARGE.replace("i64x56x56-o64x56x56", "i3x16x16-o8x16x16"),
        # Its transformed filter (36 times 1024 x 1024 floats) is not kept.
        LARGE.replace("i64x56x56-o64x56x56", "i1024x2x2-o1024x2x2"),
    ],
)
def test_winograd_covers_what_it_does_not_win(signature: str) -> None:
    problem = parse_signature(signature)
    assert get("winograd4").covers(problem, V4) is None
    assert not applicable(problem, V4)[0].name.startswith("winograd")


@pytest.mark.parametrize(
    "signature",
    [
        LARGE,
        LARGE.replace("NXC-XIO-f32", "NCX-OIX-f16"),
        LARGE.replace("o64", "o68"),
        LARGE.replace("g1", "g2"),
        LARGE.replace("d1x1-p1x1_1x1", "d2x2-p2x2_2x2"),
        "conv1d-n1-i64x8000-o64x8000-k3-s1-d1-p1_1-g1-NXC-XIO-f32",
        LARGE.replace("k3x3", "k7x7").replace("p1x1_1x1", "p3x3_3x3"),
        "conv3d-n1-i32x16x32x32-o32x16x32x32-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-f32",
        "backprop2d-n1-i128x32x32-o64x64x64-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    ],
)
def test_winograd_covers_what_it_wins(signature: str) -> None:
    assert applicable(parse_signature(signature), V4)[0].name.startswith("winograd")


def test_bf16_is_compared_with_the_dot_product() -> None:
    dot = CpuTarget("znver4", (*V4.features, "avx512_bf16"), "znver4", isa=X86)
    deep = LARGE.replace("f32", "bf16").replace("64x56x56", "512x7x7")
    assert applicable(parse_signature(LARGE.replace("f32", "bf16")), dot)[0].name == "winograd4"
    assert applicable(parse_signature(deep), dot)[0].name == "dot"


def test_gain_of_transforms_where_two_multiply_adds_start_in_a_cycle() -> None:
    problem = parse_signature(LARGE)
    zen5 = CpuTarget("znver5", V4.features, "znver5", isa=X86)
    assert (V4.multiply_adds, zen5.multiply_adds) == (1, 2)
    # 860 and 278 us on one core of a Zen 5.
    assert 2.5 < get("direct").cycles(problem, zen5) / get("winograd4").cycles(problem, zen5) < 3.5
    assert applicable(problem, V4)[0].name == applicable(problem, zen5)[0].name == "winograd4"


def test_direct_gains_from_skipping_wide_padding() -> None:
    wide = parse_signature("conv2d-n1-i512x21x21-o512x21x21-k3x3-s1x1-d8x8-p8x8_8x8-g1-NXC-XIO-f32")
    # Winograd visits all outputs where 13 of 21 meet data with each outer tap. One core of a Zen 4, ms by direct, tap by tap and
    # winograd4: 11.3, 10.9 and 13.9.
    assert applicable(wide, V4)[0].name in ("direct", "kn2row")
    ((row, column),) = convolution_axes(wide)
    assert row.met == pytest.approx((21 + 2 * 13) / 63)
    # Of tiles of 7, the first tap's 13 last outputs are in 2, and so are the last tap's 13 first.
    assert column.visited(7) == pytest.approx((21 + 2 * 14) / 63)
    # Of tiles of 3, dilated by 6, all lie in data or all in padding; by 7, those of 7 do.
    for dilation, width in ((6, 3), (7, 7)):
        pads = (dilation, dilation)
        dilated = replace(wide, dilations=pads, pads_begin=pads, pads_end=pads)
        assert best_tile(direct_windows(dilated, V4)[0], V4)[0] == width
    narrow = replace(wide, dilations=(1, 1), pads_begin=(1, 1), pads_end=(1, 1))
    assert get("direct").cycles(wide, V4) < 0.65 * get("direct").cycles(narrow, V4)


def test_a_dilated_transposed_convolution_is_one_with_wide_padding() -> None:
    forward = parse_signature("conv2d-n1-i256x28x28-o256x28x28-k3x3-s1x1-d12x12-p12x12_12x12-g1-NXC-XIO-f32")
    transposed = parse_signature(format_signature(forward).replace("conv2d", "backprop2d"))
    # One core of a Zen 4, ms by direct and kn2row: 4.24 and 4.27.
    assert applicable(transposed, V4)[0].name == applicable(forward, V4)[0].name in ("direct", "kn2row")
    assert get("direct").cycles(transposed, V4) == pytest.approx(get("direct").cycles(forward, V4), rel=0.01)
    # Without padding of its own, its first and last outputs still meet few taps.
    whole = replace(transposed, pads_begin=(0, 0), pads_end=(0, 0), out_spatial=(52, 52))
    assert get("kn2row").covers(whole, V4) is None
    strided = parse_signature("backprop2d-n1-i64x9x9-o64x33x33-k5x5-s2x2-d4x4-p0x0_0x0-g1-NXC-XIO-f32")
    assert "with strides" in (get("kn2row").covers(strided, V4) or "")
    empty = parse_signature("backprop1d-n0-i2x1-o105x1-k1-s1-d1-p0_0-g1-NXC-OIX-bf16")
    assert "does not depend on data" in (get("kn2row").covers(empty, V4) or "")


def test_what_two_algorithms_take_is_comparable() -> None:
    """Rows that vectors do not divide, copies, and empty lanes all count."""
    rows = parse_signature("conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32")
    for name in ("direct", "planar"):
        assert get(name).cycles(replace(rows, batch=2), V4) == pytest.approx(2 * get(name).cycles(rows, V4), rel=0.02)
    few = parse_signature(LARGE.replace("o64", "o3"))
    assert get("reduced").cycles(few, V4) < get("direct").cycles(few, V4)
    depthwise = parse_signature(LARGE.replace("g1", "g64"))
    assert applicable(depthwise, V4)[0].name == "grouped"


@pytest.mark.parametrize(
    ("signature", "fastest"),
    [
        # Rows share loads where planes are small; planar and grouped: 279 and 420; 40 and 31; 144 and 52.
        ("conv2d-n1-i1632x12x12-o1632x12x12-k5x5-s1x1-d1x1-p2x2_2x2-g1632-NCX-OIX-f32", "planar"),
        ("conv2d-n1-i1024x7x7-o1024x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1024-NCX-OIX-f32", "grouped"),
        ("conv2d-n1-i960x7x7-o960x7x7-k5x5-s1x1-d1x1-p2x2_2x2-g960-NCX-OIX-f32", "grouped"),
        # Copies of tiles and far filters count; direct and planar: 482 and 425; 125 and 117; 1168 and 1209; 272 and 289.
        ("conv2d-n1-i192x28x28-o128x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32", "planar"),
        ("conv2d-n1-i384x14x14-o64x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32", "planar"),
        ("conv2d-n1-i1024x14x14-o256x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32", "direct"),
        ("conv2d-n1-i832x7x7-o256x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32", "direct"),
        # What a stride leaves out of a single tap's data is not copied; direct and planar: 83 and 133; 359 and 416; 203 and 121.
        ("conv3d-n1-i128x20x20x20-o16x10x10x10-k1x1x1-s2x2x2-d1x1x1-p0x0x0_0x0x0-g1-NCX-OIX-f32", "direct"),
        ("conv2d-n1-i256x56x56-o64x28x28-k1x1-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32", "direct"),
        ("conv3d-n1-i32x32x32x32-o24x16x16x16-k1x1x1-s2x2x2-d1x1x1-p0x0x0_0x0x0-g1-NCX-OIX-f32", "planar"),
        # Winograd has an estimate of its own; planar and winograd4: 360 and 244; direct and planar: 2328 and 2719; winograd2 and
        # winograd4: 3890 and 2851, 5707 and 4455.
        ("conv2d-n1-i256x28x28-o256x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g32-NCX-OIX-f32", "winograd4"),
        ("conv2d-n1-i256x56x56-o512x28x28-k1x1-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32", "direct"),
        ("conv2d-n1-i256x16x16-o512x16x16-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32", "winograd4"),
        ("conv1d-n1-i64x16016-o128x16000-k2-s1-d16-p0_0-g1-NXC-XIO-f32", "winograd4"),
    ],
)
def test_what_is_fastest_with_16_registers_is_taken(signature: str, fastest: str) -> None:
    """Measured on one Zen 3 core in microseconds, in the comments."""
    assert applicable(parse_signature(signature), Target.parse("znver3"))[0].name == fastest


@pytest.mark.parametrize(
    ("signature", "fastest"),
    [
        # Sums of many pixels leave L2; direct and tap by tap: 39741 and 50421.
        ("conv2d-n1-i320x64x64-o256x64x64-k3x3-s1x1-d24x24-p24x24_24x24-g1-NXC-XIO-f32-bias", "direct"),
        # What a stride leaves out of a single tap's data is not copied; direct and planar: 68 and 101; 58 and 86; 155 and 88.
        ("conv3d-n1-i128x20x20x20-o16x10x10x10-k1x1x1-s2x2x2-d1x1x1-p0x0x0_0x0x0-g1-NCX-OIX-f32", "direct"),
        ("conv2d-n1-i192x40x40-o32x20x20-k1x1-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32", "direct"),
        ("conv3d-n1-i32x32x32x32-o24x16x16x16-k1x1x1-s2x2x2-d1x1x1-p0x0x0_0x0x0-g1-NCX-OIX-f32", "planar"),
        # Phases store into the same lines of planes; direct and planar: 2992 and 2550; 2161 and 1632; direct and winograd2: 60 and 35.
        ("backprop2d-n1-i256x32x32-o128x64x64-k2x2-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias", "planar"),
        ("backprop2d-n1-i64x64x64-o32x128x128-k3x3-s2x2-d1x1-p1x1_0x0-g1-NCX-OIX-f32-bias", "planar"),
        ("backprop2d-n1-i21x16x16-o21x34x34-k4x4-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32", "winograd2"),
        # Tasks copy planes that several read; grouped and planar: 2838 and 1341.
        ("conv3d-n2-i112x16x10x32-o112x16x10x32-k3x3x3-s1x1x1-d2x2x2-p2x2x2_2x2x2-g112-NCX-OIX-f32-bias", "planar"),
        # Sums of one axis' points stay in L1; direct and winograd4: 2460 and 1691.
        ("backprop1d-n4-i72x400-o72x3200-k16-s8-d1-p4_4-g1-NXC-XIO-f32-bias", "winograd4"),
        # Rows of half a vector, and longer ones; planar and grouped: 57 and 21; 38 and 8; 30 and 70.
        ("conv2d-n1-i1024x7x7-o1024x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1024-NCX-OIX-f32", "grouped"),
        ("conv2d-n1-i1280x4x4-o1280x4x4-k3x3-s1x1-d1x1-p1x1_1x1-g1280-NCX-OIX-f32", "grouped"),
        ("conv2d-n1-i144x15x15-o144x15x15-k5x5-s1x1-d2x2-p4x4_4x4-g144-NCX-OIX-f32", "planar"),
        # A copy of all data, made before the tasks, that L2 does not keep, or L3; planar and grouped: 232 and 320; 872 and 3124; planar
        # and direct: 6856 and 22456.
        ("conv1d-n1-i240x4000-o240x1334-k7-s3-d1-p3_3-g240-NCX-OIX-f16", "planar"),
        ("conv1d-n1-i960x4000-o960x1334-k7-s3-d1-p3_3-g960-NCX-OIX-f16", "planar"),
        ("conv1d-n1-i1152x8000-o1152x2667-k7-s3-d2-p6_5-g144-NCX-OIX-f16", "planar"),
        # Small matrices of groups; winograd2 and winograd4: 537 and 353.
        ("conv2d-n1-i768x12x12-o1536x12x12-k3x3-s1x1-d1x1-p1x1_1x1-g32-NCX-OIX-f32", "winograd4"),
        # Phases of groups whose channels lie together: each group visits the lines of all; phased and grouped: 186 and 20; 108 and 24;
        # 938 and 71; 911 and 349; 143000 and 2230.
        ("backprop1d-n1-i24x500-o24x16032-k64-s32-d1-p0_0-g24-NXC-XIO-f32", "grouped"),
        ("backprop2d-n1-i21x2x200-o21x2x6432-k1x64-s1x32-d1x1-p0x0_0x0-g21-NXC-XIO-f32", "grouped"),
        ("backprop2d-n1-i40x9x9-o40x160x160-k32x32-s16x16-d1x1-p0x0_0x0-g40-NXC-XIO-f32", "grouped"),
        ("backprop3d-n1-i12x4x6x6-o12x40x56x56-k16x16x16-s8x8x8-d1x1x1-p0x0x0_0x0x0-g12-NXC-XIO-f32", "grouped"),
        ("backprop2d-n1-i21x16x16-o21x544x544-k64x64-s32x32-d1x1-p0x0_0x0-g21-NXC-XIO-f32", "grouped"),
    ],
)
def test_what_is_fastest_with_32_registers_is_taken(signature: str, fastest: str) -> None:
    """Measured on one Zen 4 core in microseconds, in the comments."""
    assert applicable(parse_signature(signature), Target.parse("znver4"))[0].name == fastest


@pytest.mark.parametrize(
    ("signature", "fastest"),
    [
        # One tile an image, or four; winograd4 and dot: 1390 and 620; 1620 and 940.
        ("conv3d-n1-i256x47x4x4-o32x24x4x4-k3x3x3-s2x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-bf16-bias", "dot"),
        ("conv2d-n8-i1024x7x7-o1024x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-bf16", "dot"),
        # Several images a task; dot and winograd4: 6040 and 3620.
        ("conv3d-n1-i48x14x32x20-o64x14x32x20-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-bf16", "winograd4"),
        # Transformed data that no L2 keeps, read for each tap of the first axis.
        ("conv3d-n1-i256x11x11x9-o512x9x9x7-k3x3x3-s1x1x1-d1x1x1-p0x0x0_0x0x0-g1-NXC-XIO-bf16", "dot"),
        ("conv2d-n1-i256x28x28-o256x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16", "winograd4"),
        # Sums of taps that L1 does not keep.
        ("conv1d-n1-i256x688-o256x688-k7-s1-d3-p9_9-g1-NXC-XIO-bf16-bias", "dot"),
        # Rows of eight pixels are images of one axis: a task has all, and reads the filter once.
        ("conv2d-n1-i384x8x8-o384x8x8-k1x3-s1x1-d1x1-p0x1_0x1-g1-NXC-XIO-bf16", "dot"),
        # Rows of planes that all lie in one set of L1; columns a stride apart are copied one by one.
        ("conv2d-n1-i3x640x640-o32x320x320-k3x3-s2x2-d1x1-p1x1_0x0-g1-NCX-OIX-bf16", "planar"),
        ("conv3d-n4-i176x6x20x20-o176x3x10x10-k3x3x3-s2x2x2-d1x1x1-p0x0x0_1x1x1-g176-NCX-OIX-bf16", "grouped"),
        # Planes of groups are widened first; planar and grouped: 296 and 168.
        ("conv2d-n1-i64x112x112-o64x56x56-k3x3-s2x2-d1x1-p1x1_0x0-g64-NCX-OIX-bf16", "grouped"),
    ],
)
def test_what_is_fastest_in_bf16_on_a_zen_4_is_taken(signature: str, fastest: str) -> None:
    assert applicable(parse_signature(signature), Target.parse("znver4"))[0].name == fastest


def test_constant_is_for_taps_that_meet_padding_alone() -> None:
    beside = parse_signature("conv2d-n1-i16x1x9-o16x3x9-k1x5-s3x1-d1x1-p4x2_2x2-g1-NXC-XIO-f32")
    past = parse_signature("backprop2d-n1-i8x2x1-o8x1x1-k1x1-s2x1-d1x1-p1x0_1x0-g1-NXC-XIO-f32-bias")
    assert (
        [each.name for each in applicable(beside, V4)]
        == [each.name for each in applicable(past, V4)]
        == ["constant", "plain"]
    )
    assert get("kn2row").covers(replace(beside, pads_begin=(6, 2), pads_end=(0, 2)), V4) is None


def test_bf16_is_widened_where_that_is_faster_than_the_dot_product() -> None:
    problem = parse_signature("conv2d-n1-i256x14x14-o256x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-bf16")
    amd, intel = (CpuTarget(name, (*V4.features, "avx512_bf16"), name, isa=X86) for name in ("znver5", "emeraldrapids"))
    assert applicable(problem, amd)[0].name == "dot"
    assert applicable(problem, intel)[0].name == "direct"
    tiles = replace(intel, features=(*intel.features, "amx_bf16", "amx_tile"))
    assert applicable(problem, tiles)[0].name == "amx"
    assert get("amx").covers(problem, intel) == "emeraldrapids has no amx_bf16, amx_tile"


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_tiles_multiply_halves_where_transforms_are_allowed(dtype: str) -> None:
    problem = parse_signature(f"conv2d-n1-i128x56x56-o128x28x28-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-{dtype}")
    tiles = Target.parse("sapphirerapids")
    assert applicable(problem, tiles)[0].name == "amx_halves"
    assert "amx_halves" not in {each.name for each in applicable(problem, tiles, "strict")}
    assert "amx_halves" not in {each.name for each in applicable(problem, Target.parse("znver5"))}
    assert get("amx").covers(problem, tiles) == f"it multiplies bf16, not {dtype}"


def test_halves_leave_sums_that_may_all_cancel_to_others() -> None:
    problem = parse_signature("conv2d-n1-i64x1x1-o15x1x1-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32")
    said = get("amx_halves").covers(problem, Target.parse("sapphirerapids"))
    assert said is not None and said.startswith("fewer than 16 outputs")
    assert get("amx_halves").covers(problem.with_(batch=2), Target.parse("sapphirerapids")) is None


def test_tiles_leave_small_groups_to_others() -> None:
    problem = parse_signature(LARGE.replace("64x56x56", "128x28x28").replace("g1", "g32").replace("f32", "bf16"))
    tiles = CpuTarget("x", (*V4.features, "amx_bf16", "amx_tile", "avx512_bf16"), "sapphirerapids", isa=X86)
    assert applicable(problem, tiles)[0].name == "grouped"  # measured: 90 us, and 270 by tiles
