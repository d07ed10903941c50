"""Flattening keeps every array's elements in order, so the answer is the same array in another shape."""

from __future__ import annotations

import numpy as np
import pytest

from tvmconv import fills, reference
from tvmconv.algorithms.flatten import flatten
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
    ],
)
def test_same_elements_in_the_same_order(signature: str, flat: str) -> None:
    problem = parse_signature(signature)
    small = flatten(problem)
    assert format_signature(small) == flat
    arrays = fills.exact_fill(problem)
    expected = reference.compute(problem, arrays.data, arrays.filter, arrays.bias)
    reshaped = reference.compute(
        small, arrays.data.reshape(small.data_shape), arrays.filter.reshape(small.filter_shape), arrays.bias
    )
    np.testing.assert_array_equal(reshaped.reshape(expected.shape), expected)
