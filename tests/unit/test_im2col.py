"""Pixels copied together: a channel of data is multiplied by the weight of the same tap and channel."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tvmconv.algorithms.cpu.direct import direct_windows
from tvmconv.algorithms.cpu.windows.im2col import Im2colWindow, im2col
from tvmconv.algorithms.cpu.windows.make import windows_of
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

AVX2 = Target.parse("x86-64-v3")
PATCHES = "conv2d-n1-i{channels}x28x43-o64x14x14-k2x3-s2x3-d1x1-p0x0_0x0-g1-NXC-{layout}-bf16"


@pytest.mark.parametrize(("channels", "layout", "factor"), list(product((3, 4), ("XIO", "OIX"), (1, 2))))
def test_data_and_filter_agree_on_taps_and_channels(channels: int, layout: str, factor: int) -> None:
    problem = parse_signature(PATCHES.format(channels=channels, layout=layout))
    window = im2col(replace(windows_of(problem, AVX2)[0], vnni_factor=factor), AVX2)
    assert isinstance(window, Im2colWindow) and window.row % 6 == 0
    assert window.data_in_pairs == (channels % 2 == 0)
    y, x = 5, 9
    met = set()
    for element, which in product(range(window.channels), range(factor)):
        if factor == 2 and window.data_in_pairs:
            at, pair = window.in_data([y * 14 + x], element)
            channel = 2 * pair + which
        else:
            at, channel = window.in_data([y * 14 + x], factor * element + which)
        indices = window.filter_indices(0, [0], [0], factor * element + which, 7)
        *taps, c, o = indices if layout == "XIO" else [*indices[2:], indices[1], indices[0]]
        assert (at, channel, o) == ([2 * y + taps[0], 3 * x + taps[1]], c, 7)
        met.add((*taps, c))
    assert len(met) == 2 * 3 * channels


@pytest.mark.parametrize(
    "signature",
    [
        "conv2d-n1-i3x29x43-o64x14x14-k3x3-s2x3-d1x1-p0x0_0x0-g1-NXC-XIO-f32",  # rows overlap
        "conv2d-n1-i3x28x42-o64x14x14-k2x2-s2x3-d2x2-p0x0_1x1-g1-NXC-XIO-f32",  # dilated, and padded
        "conv2d-n1-i6x28x42-o64x14x14-k2x3-s2x3-d1x1-p0x0_0x0-g2-NXC-XIO-f32",
        "conv2d-n1-i3x28x42-o64x14x14-k2x3-s2x3-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
    ],
)
def test_other_windows_stay(signature: str) -> None:
    window = windows_of(parse_signature(signature), AVX2)[0]
    assert im2col(window, AVX2) is window


def test_pixels_copied_together_get_an_even_number_of_vectors() -> None:
    strided = parse_signature("conv2d-n1-i256x28x28-o136x14x14-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-OIX-f32")
    (window,) = direct_windows(strided, AVX2)
    assert isinstance(window, Im2colWindow) and window.padded_outputs // window.lanes == 18


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize(("pixels", "copied"), [(7, True), (28, False)])
def test_strided_taps_over_few_pixels_are_copied_whatever_the_batch(batch: int, pixels: int, copied: bool) -> None:
    shapes = f"i512x{2 * pixels}x{2 * pixels}-o512x{pixels}x{pixels}"
    strided = parse_signature(f"conv2d-n{batch}-{shapes}-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32")
    (window,) = direct_windows(strided, AVX2)
    assert isinstance(window, Im2colWindow) == copied


@pytest.mark.parametrize(("channels", "factor", "lanes"), [(12, 2, 2), (4, 1, 4), (4, 2, 2), (16, 2, 8), (3, 1, 1)])
def test_vectors_of_a_copy_end_with_a_row_of_a_patch(channels: int, factor: int, lanes: int) -> None:
    """Three taps of a row lie together, those of the row below elsewhere."""
    problem = parse_signature(PATCHES.format(channels=channels, layout="XIO"))
    window = im2col(replace(windows_of(problem, AVX2)[0], vnni_factor=factor), AVX2)
    assert window.most_lanes == lanes


@pytest.mark.parametrize(("channels", "layout", "factor"), [(3, "XIO", 2), (4, "OIX", 1)])
def test_vectors_of_a_copy_whose_elements_lie_apart_anyway_are_long(channels: int, layout: str, factor: int) -> None:
    problem = parse_signature(PATCHES.format(channels=channels, layout=layout))
    window = im2col(replace(windows_of(problem, AVX2)[0], vnni_factor=factor), AVX2)
    assert window.most_lanes > 16
