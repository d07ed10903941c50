"""Every worked number of the contract, through shape inference, pads and the reference's digits.

Data is 1, 2, 3, ..., the filter 1, 10, 100, ..., so that an output's digits say which tap met which element.
"""

from __future__ import annotations

import numpy as np
import pytest

from tvmconv import ops, reference

pytestmark = pytest.mark.smoke

CONVOLUTION = [
    # X, K, s, d, mode; pads and output by the default rule; pads and output by "pre_stride"
    ((4, 3, 2, 1), ["same_upper"], (0, 1), [321, 43], (1, 1), [210, 432]),
    ((6, 3, 2, 1), ["same_upper"], (0, 1), [321, 543, 65], (1, 1), [210, 432, 654]),
    ((4, 2, 2, 1), ["same_lower"], (0, 0), [21, 43], (1, 0), [10, 32]),
    ((6, 5, 3, 1), ["same_upper", "same_lower"], (1, 1), [43210, 6543], (2, 2), [32100, 65432]),
    ((8, 3, 4, 1), ["same_upper", "same_lower"], (0, 0), [321, 765], (1, 1), [210, 654]),
    ((8, 3, 2, 2), ["same_upper"], (1, 2), [420, 642, 864, 86], (2, 2), [310, 531, 753, 75]),
    ((5, 1, 3, 1), ["same_upper", "same_lower"], (0, 0), [1, 4], (0, 0), [1, 4]),
]
CONVOLUTION_ROWS = [
    pytest.param(numbers, mode, rule, pads, output, id=f"{numbers}-{mode}-{rule}")
    for numbers, modes, *rules in CONVOLUTION
    for mode in modes
    for rule, pads, output in (("default", *rules[:2]), ("pre_stride", *rules[2:]))
]

KEEP = {"same_rule": "keep_pads"}
NATURAL = [1, 10, 102, 20, 203, 30, 300]
BACKPROP = [
    # attributes, pads, output (X = 3, K = 3, s = 2)
    ({"pads_begin": [0], "pads_end": [0]}, (0, 0), NATURAL),
    ({"auto_pad": "same_upper", "output_shape": [6]}, (1, 0), NATURAL[1:]),
    ({"auto_pad": "same_upper", "output_shape": [6], "same_rule": "attribute_text"}, (0, 1), NATURAL[:-1]),
    ({"auto_pad": "same_lower", "output_shape": [6]}, (0, 1), NATURAL[:-1]),
    ({"auto_pad": "same_lower", "output_shape": [6], "same_rule": "attribute_text"}, (1, 0), NATURAL[1:]),
    ({"output_shape": [6]}, (0, 1), NATURAL[:-1]),
    ({"output_shape": [6], "same_rule": "attribute_text"}, (0, 1), NATURAL[:-1]),
    ({"auto_pad": "valid", "output_shape": [6]}, (0, 1), NATURAL[:-1]),
    ({"output_shape": [5]}, (1, 1), NATURAL[1:-1]),
    ({"output_shape": [8]}, (0, 0), [*NATURAL, 0]),
    ({"output_shape": [9]}, (0, 0), [*NATURAL, 0, 0]),
    ({"pads_begin": [0], "pads_end": [0], "output_padding": [1]}, (0, 0), [*NATURAL, 0]),
    # The output padding takes the end pad back: canonically there is none.
    ({"pads_begin": [1], "pads_end": [1], "output_padding": [1]}, (1, 0), NATURAL[1:]),
    # total = max(7 - 6 + 1, 0) = 2, halved; the output padding then unlocks one more at the end.
    ({"output_shape": [6], "output_padding": [1]}, (1, 0), NATURAL[1:]),
    # Without output_shape every auto_pad means no pads.
    ({"auto_pad": "valid"}, (0, 0), NATURAL),
    ({"auto_pad": "same_upper"}, (0, 0), NATURAL),
    ({"auto_pad": "same_lower", "output_padding": [2]}, (0, 0), [*NATURAL, 0, 0]),
    # Given pads are ignored as soon as auto_pad or output_shape says otherwise.
    ({"auto_pad": "valid", "pads_begin": [2], "pads_end": [1]}, (0, 0), NATURAL),
    ({"output_shape": [5], "pads_begin": [2], "pads_end": [0]}, (1, 1), NATURAL[1:-1]),
    # Unless they are to be kept: those at the beginning; the output is cut off, or goes on in zeros.
    ({**KEEP, "output_shape": [6], "pads_begin": [0]}, (0, 1), NATURAL[:-1]),
    ({**KEEP, "output_shape": [6], "pads_begin": [1], "pads_end": [0]}, (1, 0), NATURAL[1:]),
    ({**KEEP, "output_shape": [5], "pads_begin": [1], "pads_end": [1]}, (1, 1), NATURAL[1:-1]),
    ({**KEEP, "output_shape": [7], "pads_begin": [2], "pads_end": [3]}, (2, 0), [*NATURAL[2:], 0, 0]),
    ({**KEEP, "output_shape": [9], "pads_begin": [0], "output_padding": [1]}, (0, 0), [*NATURAL, 0, 0]),
    ({**KEEP, "output_shape": [6], "pads_begin": [1], "output_padding": [1]}, (1, 0), NATURAL[1:]),
    ({**KEEP, "output_shape": [3], "pads_begin": [6]}, (6, 0), [300, 0, 0]),
    ({**KEEP, "output_shape": [3], "pads_begin": [7]}, (7, 0), [0, 0, 0]),
    ({**KEEP, "auto_pad": "valid", "output_shape": [6], "pads_begin": [1]}, (0, 1), NATURAL[:-1]),
    ({**KEEP, "auto_pad": "valid", "output_shape": [9]}, (0, 0), [*NATURAL, 0, 0]),
    ({**KEEP, "auto_pad": "same_upper", "output_shape": [6], "pads_begin": [1]}, (1, 0), NATURAL[1:]),
    ({**KEEP, "auto_pad": "same_lower", "output_shape": [6], "pads_begin": [1]}, (0, 1), NATURAL[:-1]),
    ({**KEEP, "pads_begin": [1], "pads_end": [2]}, (1, 2), NATURAL[1:-2]),
]


def digits(count: int) -> np.ndarray:
    return 10.0 ** np.arange(count).reshape(count, 1, 1)


@pytest.mark.parametrize(("numbers", "mode", "rule", "pads", "output"), CONVOLUTION_ROWS)
def test_convolution(numbers, mode, rule, pads, output):
    x, k, s, d = numbers
    data, filter_ = np.arange(1.0, x + 1).reshape(1, x, 1), digits(k)
    auto = {"strides": [s], "dilations": [d], "auto_pad": mode, "same_rule": rule}
    explicit = {"strides": [s], "dilations": [d], "pads_begin": [pads[0]], "pads_end": [pads[1]]}
    assert ops.convolution(data.shape, filter_.shape, **auto) == ops.convolution(data.shape, filter_.shape, **explicit)
    for attributes in (auto, explicit):
        assert reference.convolution(data, filter_, **attributes).ravel().tolist() == output


@pytest.mark.parametrize("mode", ["valid", "VALID", "Valid"])
def test_convolution_valid_has_no_pads(mode):
    attributes = {"strides": [2], "dilations": [1], "auto_pad": mode, "pads_begin": [9], "pads_end": [9]}
    output = reference.convolution(np.arange(1.0, 7).reshape(1, 6, 1), digits(3), **attributes)
    assert output.ravel().tolist() == [321, 543]


@pytest.mark.parametrize(("attributes", "pads", "output"), BACKPROP)
def test_backprop_data(attributes, pads, output):
    data, filter_ = np.array([1.0, 2, 3]).reshape(1, 3, 1), digits(3)
    problem = ops.convolution_backprop_data(data.shape, filter_.shape, strides=[2], dilations=[1], **attributes)
    assert (problem.pads_begin, problem.pads_end) == ((pads[0],), (pads[1],))
    assert problem.out_spatial == (len(output),)
    result = reference.convolution_backprop_data(data, filter_, strides=[2], dilations=[1], **attributes)
    assert result.ravel().tolist() == output


def test_a_longer_output_ends_in_bias():
    output = reference.convolution_backprop_data(
        np.array([1.0, 2, 3]).reshape(1, 3, 1), digits(3), [9], np.array([5.0]), strides=[2], dilations=[1]
    )
    assert output.ravel().tolist() == [value + 5 for value in (*NATURAL, 0, 0)]


def test_channels_of_the_filter_layouts():
    """(OC, IC/g, k) and (k, IC/g, OC) forward; (C, M/g, k) and (k, M/g, C) backward; groups are contiguous."""
    attributes = {"strides": [1], "dilations": [1], "auto_pad": "valid", "groups": 2}
    data = np.array([1.0, 2, 3, 4]).reshape(1, 1, 4)
    forward = np.array([[10.0, 20, 30, 40, 50, 60], [1, 2, 3, 4, 5, 6]])  # (IC/g, OC)
    expected = [12, 24, 36, 3 * 40 + 4 * 4, 3 * 50 + 4 * 5, 3 * 60 + 4 * 6]
    xio = reference.convolution(data, forward[None], **attributes)
    oix = reference.convolution(data, forward.T[:, :, None], filter_format="OIX", **attributes)
    assert xio.ravel().tolist() == oix.ravel().tolist() == expected
    backward = np.array([[10.0, 20, 30, 40], [1, 2, 3, 4], [5, 6, 7, 8]])  # (M/g, C)
    expected = [10 + 40, 1 + 4, 5 + 12, 90 + 160, 9 + 16, 21 + 32]
    xio = reference.convolution_backprop_data(data, backward[None], **attributes)
    oix = reference.convolution_backprop_data(data, backward.T[:, :, None], filter_format="OIX", **attributes)
    assert xio.ravel().tolist() == oix.ravel().tolist() == expected


def test_data_layouts():
    attributes = {"strides": [1, 1], "dilations": [1, 1], "auto_pad": "valid"}
    data = np.arange(24.0).reshape(1, 2, 3, 4)
    filter_ = np.arange(16.0).reshape(2, 2, 4, 1)
    nxc = reference.convolution(data, filter_, **attributes)
    ncx = reference.convolution(np.moveaxis(data, -1, 1), filter_, data_format="NCX", **attributes)
    assert nxc.shape == (1, 1, 2, 1)
    assert ncx.shape == (1, 1, 1, 2)
    assert nxc.ravel().tolist() == ncx.ravel().tolist()


def test_defaults():
    """groups 1, NXC, XIO, no auto_pad, f32, no bias."""
    problem = ops.convolution((1, 9, 2), (3, 2, 5), strides=[1], dilations=[1], pads_begin=[0], pads_end=[0])
    assert (problem.groups, problem.data_format, problem.filter_format) == (1, "NXC", "XIO")
    assert (problem.dtype, problem.bias) == ("f32", False)
    problem = ops.convolution_backprop_data((1, 9, 5), (3, 2, 5), strides=[1], dilations=[1], auto_pad="valid")
    assert (problem.groups, problem.data_format, problem.filter_format) == (1, "NXC", "XIO")
    assert problem.out_spatial == (11,)


def test_pads_may_exceed_the_filter():
    output = reference.convolution(
        np.ones((1, 1, 1)), digits(2), strides=[1], dilations=[1], pads_begin=[4], pads_end=[3]
    )
    assert output.ravel().tolist() == [0, 0, 0, 10, 1, 0, 0]
