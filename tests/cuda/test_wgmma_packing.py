"""Arrays that wgmma reads as copies in the workspace: run by the emulator, compared exactly with the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cuda_kernels import images_of, needs_nvcc
from emulator import EmulationError
from test_spaces import frames
from test_wgmma import SM_90A, is_exact, tiled_source

from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cuda.wgmma_tiles import packing_of, wgmma_tiles
from tvmconv.lowering.cuda.nvcc import compile_fatbin
from tvmconv.signature import parse_signature

# Signature; whether data and filter are copied; channels of a pixel, and of a step's pixels, which a row of taps has together.
PROBLEMS = {
    "planes": ("conv2d-n2-i72x9x9-o64x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f16-bias-add", True, True, 72, 216),
    "planes_by_taps": (
        "conv2d-n1-i40x8x15-o72x8x15-k3x3-s1x1-d1x2-p1x2_1x2-g1-NCX-XIO-bf16-scale",
        True,
        False,
        40,
        40,
    ),
    # Rows of pixels are read as they are.
    "rows": ("conv2d-n2-i36x9x24-o72x5x24-k3x3-s2x1-d1x8-p1x8_1x8-g1-NCX-XIO-f16-bias-add", False, False, 36, 36),
    "one_tap": ("conv2d-n2-i64x5x8-o21x5x8-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f16-bias", False, False, 64, 64),
    "volume": ("conv3d-n2-i72x4x3x8-o24x4x3x8-k3x1x1-s1x1x1-d1x1x1-p2x0x0_0x0x0-g1-NCX-OIX-bf16", False, True, 72, 72),
    "wide": ("backprop2d-n1-i64x3x16-o24x6x32-k2x2-s2x2-d1x1-p0x0_0x0-g1-NCX-XIO-f16-bias", False, False, 64, 64),
    "odd": ("conv2d-n2-i20x9x9-o21x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-OIX-f16-bias-prelu-add", True, True, 24, 24),
    "dilated": ("conv2d-n1-i5x14x20-o24x14x20-k3x3-s1x1-d2x3-p2x3_2x3-g1-NXC-XIO-bf16", True, False, 8, 8),
    "filter": ("conv2d-n1-i8x9x9-o10x5x5-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f16-add", False, True, 8, 8),
    "stem": ("conv2d-n2-i3x24x37-o16x12x19-k7x7-s2x2-d1x1-p3x2_2x4-g1-NXC-XIO-f16-bias", True, True, 4, 28),
    "stem_planes": ("conv2d-n2-i3x12x13-o10x6x7-k3x3-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-bf16-bias-relu", True, True, 4, 12),
    "one": ("conv2d-n1-i1x9x8-o1x9x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-XIO-f16", True, True, 8, 24),
    # Patches lie as steps take them.
    "patches": ("conv2d-n2-i3x64x64-o24x4x4-k16x16-s16x16-d1x1-p0x0_0x0-g1-NXC-XIO-f16-bias", False, False, 48, 48),
    "patches_planes": ("conv2d-n2-i3x42x42-o20x3x3-k14x14-s14x14-d1x1-p0x0_0x0-g1-NCX-OIX-bf16", True, True, 4, 56),
    "wave": ("conv1d-n2-i1x200-o12x39-k10-s5-d1-p0_0-g1-NCX-OIX-f16", True, True, 8, 80),
    "causal": (
        "conv3d-n1-i12x3x5x6-o5x3x5x6-k3x3x3-s1x1x1-d1x1x1-p2x1x1_0x1x1-g1-NCX-XIO-bf16-bias",
        True,
        True,
        16,
        48,
    ),
    "transposed": (
        "backprop2d-n2-i20x5x6-o21x10x11-k4x3-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-f16-bias-add",
        True,
        True,
        24,
        24,
    ),
    "transposed_last": ("backprop1d-n1-i12x20-o10x59-k5-s3-d1-p1_2-g1-NXC-XIO-bf16", True, True, 16, 16),
}
QUICK = ("planes", "odd", "stem", "stem_planes", "patches", "transposed", "rows")


def cases(quick: tuple[str, ...]) -> list:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in PROBLEMS]


@pytest.mark.parametrize("name", cases(QUICK))
def test_is_exact(name: str) -> None:
    problem = parse_signature(PROBLEMS[name][0])
    tile = wgmma_tiles(problem, SM_90A)[0]
    source = tiled_source(
        PROBLEMS[name][0], tile.rows, tile.columns, blocks=2, halo=tile.has_halo, alternate=tile.alternate
    )
    assert is_exact(source, problem)


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_copied(name: str) -> None:
    signature, data, weights, channels, together = PROBLEMS[name]
    packing = packing_of(parse_signature(signature), SM_90A)
    assert (packing.copies_data, packing.copies_filter) == (data, weights)
    assert (packing.channels, packing.problem.in_channels) == (channels, together)
    tile = wgmma_tiles(parse_signature(signature), SM_90A)[0]
    source = tiled_source(signature, tile.rows, tile.columns, halo=tile.has_halo, alternate=tile.alternate)
    assert len(source.launches) == 1 + (data or weights) and (source.workspace_bytes > 0) == (data or weights)
    assert (packing.cycles > 0) == (data or weights)


def test_what_can_be_read_is_not_copied() -> None:
    """Though fewer steps of a row of taps would do: data would have to be copied for its padding."""
    problem = parse_signature("conv2d-n32-i16x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16")
    assert packing_of(problem, SM_90A).problem.kernel == (1, 3, 3)
    unpadded = problem.with_(pads_begin=(0, 0), pads_end=(0, 0), out_spatial=(54, 54))
    packing = packing_of(unpadded, SM_90A)
    assert packing.problem.kernel == (1, 3, 1) and not packing.copies_data and not packing.copies_filter


@pytest.mark.parametrize(
    "signature",
    [
        "conv2d-n40-i3x4000x4000-o8x2000x2000-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f16",
        # Rows of patches, each as often as it is read.
        "conv2d-n1-i3x20000x20000-o8x1991x19901-k100x100-s10x1-d1x1-p0x0_0x0-g1-NXC-XIO-f16",
    ],
)
def test_copies_are_not_too_large_for_indices(signature: str) -> None:
    why = algorithms.get("wgmma").covers(parse_signature(signature), SM_90A)
    assert why is not None and "32-bit indices reach with zeros added" in why


@pytest.mark.parametrize("layout", ["NXC-XIO", "NCX-OIX"])
def test_estimates_count_what_is_copied(layout: str) -> None:
    """Other algorithms move the stem's elements one by one."""
    stem = parse_signature(f"conv2d-n32-i3x224x224-o64x112x112-k7x7-s2x2-d1x1-p3x3_2x2-g1-{layout}-f16")
    wgmma, tensorcore = algorithms.get("wgmma"), algorithms.get("tensorcore")
    assert wgmma.cycles(stem, SM_90A) < 0.2 * tensorcore.cycles(stem, SM_90A)
    wider = stem.with_(in_channels=8)
    assert tensorcore.cycles(wider.with_(data_format="NXC", filter_format="XIO"), SM_90A) < tensorcore.cycles(
        stem, SM_90A
    )
    # Of one tap, pixels lie together.
    tap = parse_signature("conv2d-n32-i256x14x14-o64x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f16")
    assert wgmma.cycles(tap, SM_90A) > tensorcore.cycles(tap, SM_90A)


# Of "planes" but 69 channels: the text that makes it wrong.
FAULTS = {
    "reads a tile before it is filled": (
        "__syncthreads();\n#pragma unroll\n  for (int i = threadIdx.x; i < kTile",
        "for (int i = threadIdx.x; i < kTile",
    ),
    "leaves out the zeros": ("inner < Array::kInner && x < Array::kX", "inner < Array::kInner"),
    "takes channels for neighbours": ("kChannelStep = kPlanes ? kPixels : 1", "kChannelStep = 1"),
    "stores where there is no pixel": ("if (pixel >= 0 && tile.o", "if (tile.o"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_show(fault: str) -> None:
    text, instead = FAULTS[fault]
    signature = PROBLEMS["planes"][0].replace("i72", "i69")
    source = tiled_source(signature, 128, 64)
    assert source.source.count(text) == 1
    broken = replace(source, source=source.source.replace(text, instead))
    try:
        shows = not is_exact(broken, parse_signature(signature))
    except EmulationError:
        shows = True
    assert shows


@needs_nvcc
def test_machine_code() -> None:
    """Neither copies nor stores by threads keep values in memory."""
    for signature in ("stem", "planes", "one_tap"):
        source = tiled_source(PROBLEMS[signature][0], 128, 256)
        ((_, _, cubin),) = images_of(compile_fatbin(source.source, SM_90A))
        assert frames(cubin) == [0] * len(source.launches)
