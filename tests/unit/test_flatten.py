"""Flattening keeps every array's elements in order, so the answer is the same array in another shape."""

from __future__ import annotations

import numpy as np
import pytest

from tvmconv import fills, reference
from tvmconv.algorithms.flatten import flatten, original_channel
from tvmconv.signature import format_signature, parse_signature


@pytest.mark.parametrize(
    ("signature", "flat"),
    [
        (
            "conv2d-n2-i8x7x7-o16x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
            "conv1d-n1-i8x98-o16x98-k1-s1-d1-p0_0-g1-NXC-XIO-f32",
        ),
        (
            "conv2d-n2-i8x7x7-o16x7x7-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
            "conv1d-n2-i8x49-o16x49-k1-s1-d1-p0_0-g1-NCX-OIX-f32",
        ),
        (
            "conv3d-n2-i4x3x5x6-o4x3x5x6-k1x3x3-s1x1x1-d1x1x1-p0x1x1_0x1x1-g1-NXC-XIO-f32",
            "conv2d-n6-i4x5x6-o4x5x6-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
        ),
        (
            "conv3d-n2-i4x7x5x6-o4x7x5x6-k3x1x1-s1x1x1-d1x1x1-p1x0x0_1x0x0-g1-NXC-XIO-f32",
            "conv2d-n2-i4x7x30-o4x7x30-k3x1-s1x1-d1x1-p1x0_1x0-g1-NXC-XIO-f32",
        ),
        (
            "backprop2d-n3-i4x5x6-o8x5x13-k1x3-s1x2-d1x1-p0x0_0x0-g2-NXC-XIO-f32-bias",
            "backprop1d-n15-i4x6-o8x13-k3-s2-d1-p0_0-g2-NXC-XIO-f32-bias",
        ),
        (  # strided and padded axes are not carried along
            "conv2d-n1-i4x8x8-o4x4x4-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
            "conv2d-n1-i4x8x8-o4x4x4-k1x1-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
        ),
        (  # a tall filter over data of width 1
            "conv2d-n1-i6x20x1-o5x9x1-k4x1-s2x1-d1x1-p1x0_0x0-g1-NCX-OIX-f32",
            "conv1d-n1-i6x20-o5x9-k4-s2-d1-p1_0-g1-NCX-OIX-f32",
        ),
        (  # depthwise too
            "backprop3d-n2-i6x1x5x1-o6x1x9x1-k1x3x1-s1x2x1-d1x1x1-p0x1x0_0x1x0-g6-NCX-OIX-f32",
            "backprop1d-n2-i6x5-o6x9-k3-s2-d1-p1_1-g6-NCX-OIX-f32",
        ),
        (  # taps along all of the last axis
            "conv2d-n2-i3x9x7-o5x7x1-k3x7-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",
            "conv1d-n2-i21x9-o5x7-k3-s1-d1-p0_0-g1-NXC-XIO-f32-bias",
        ),
        (  # of the first
            "conv2d-n2-i3x7x9-o5x1x7-k7x3-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias",
            "conv1d-n2-i21x9-o5x7-k3-s1-d1-p0_0-g1-NCX-OIX-f32-bias",
        ),
        (  # of both: a product of matrices, of the whole batch
            "conv2d-n2-i3x7x9-o5x1x1-k7x9-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32-bias",
            "conv1d-n1-i189x2-o5x2-k1-s1-d1-p0_0-g1-NXC-OIX-f32-bias",
        ),
        (  # a row that is padded, layouts whose channels lie apart from it, and groups stay
            "conv2d-n2-i3x9x7-o5x7x3-k3x7-s1x1-d1x1-p0x1_0x1-g1-NXC-XIO-f32",
            "conv2d-n2-i3x9x7-o5x7x3-k3x7-s1x1-d1x1-p0x1_0x1-g1-NXC-XIO-f32",
        ),
        (
            "conv2d-n2-i3x9x7-o5x7x1-k3x7-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-f32",
            "conv2d-n2-i3x9x7-o5x7x1-k3x7-s1x1-d1x1-p0x0_0x0-g1-NXC-OIX-f32",
        ),
        (
            "conv2d-n2-i4x9x7-o4x7x1-k3x7-s1x1-d1x1-p0x0_0x0-g2-NXC-XIO-f32",
            "conv2d-n2-i4x9x7-o4x7x1-k3x7-s1x1-d1x1-p0x0_0x0-g2-NXC-XIO-f32",
        ),
        (  # patches: a row of each is a pixel
            "conv2d-n2-i3x8x15-o5x4x3-k2x5-s2x5-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",
            "conv2d-n2-i15x8x3-o5x4x3-k2x1-s2x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",
        ),
        (  # a row of all
            "conv2d-n2-i3x7x15-o5x7x3-k1x5-s1x5-d1x1-p0x0_0x0-g1-NXC-XIO-f32-bias",
            "conv1d-n1-i15x42-o5x42-k1-s1-d1-p0_0-g1-NXC-XIO-f32-bias",
        ),
        (  # some of the data is left over; planes lie apart
            "conv1d-n2-i3x16-o5x3-k5-s5-d1-p0_0-g1-NXC-XIO-f32",
            "conv1d-n2-i3x16-o5x3-k5-s5-d1-p0_0-g1-NXC-XIO-f32",
        ),
        (
            "conv2d-n2-i3x8x15-o5x4x3-k2x5-s2x5-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
            "conv2d-n2-i3x8x15-o5x4x3-k2x5-s2x5-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
        ),
        (  # a transposed pixel becomes an image
            "backprop2d-n5-i6x1x1-o3x4x4-k4x4-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
            "conv1d-n1-i6x5-o48x5-k1-s1-d1-p0_0-g1-NXC-XIO-f32",
        ),
        (
            "backprop2d-n5-i6x1x1-o3x4x4-k4x4-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
            "conv1d-n1-i6x5-o48x5-k1-s1-d1-p0_0-g1-NXC-OIX-f32",
        ),
        (  # less of it
            "backprop2d-n5-i6x1x1-o3x2x4-k4x4-s1x1-d1x1-p1x0_1x0-g1-NXC-XIO-f32",
            "backprop1d-n5-i6x1-o12x2-k4-s1-d1-p1_1-g1-NXC-XIO-f32",
        ),
    ],
)
def test_same_elements_in_the_same_order(signature: str, flat: str) -> None:
    problem = parse_signature(signature)
    small = flatten(problem)
    assert format_signature(small) == flat
    channel = original_channel(problem, small)
    bias = np.arange(problem.out_channels, dtype=np.float32)
    spread = np.array([bias[channel(c)] for c in range(small.out_channels)], dtype=np.float32)  # type: ignore[index]
    arrays = fills.exact_fill(problem)
    expected = reference.compute(problem.with_(bias=True), arrays.data, arrays.filter, bias)
    data, filter = arrays.data.reshape(small.data_shape), arrays.filter.reshape(small.filter_shape)
    reshaped = reference.compute(small.with_(bias=True), data, filter, spread)
    np.testing.assert_array_equal(reshaped.reshape(expected.shape), expected)
