"""The reference against PyTorch in float64, and against loops written straight from the formulas."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from near import assert_near

from tvmconv import ops, reference
from tvmconv.errors import InputError, InvalidProblemError


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("op", ["convolution", "convolution_backprop_data"])
def test_equals_loops(op, rank, groups):
    rng = np.random.default_rng(rank)
    x, k, s = (5, 6, 4)[:rank], (3, 2, 2)[:rank], (2, 1, 3)[:rank]
    d, begin, end = (1, 3, 2)[:rank], (2, 0, 1)[:rank], (1, 1, 0)[:rank]
    data = rng.integers(-9, 9, (2, *x, 4))
    filter_ = rng.integers(-9, 9, (*k, 4 // groups, 6) if op == "convolution" else (*k, 6 // groups, 4))
    attributes = {"strides": s, "dilations": d, "groups": groups}
    expected = naive.compute(op, data, filter_, begin=begin, end=end, **attributes)
    assert expected.any()
    np.testing.assert_array_equal(
        getattr(reference, op)(data, filter_, pads_begin=begin, pads_end=end, **attributes), expected
    )


TORCH_CASES = [
    # rank, channels in and out, groups, kernel, stride, dilation, pad, output padding (backprop)
    (1, 4, 6, 2, 3, 2, 1, 1, 1),
    (1, 3, 5, 1, 4, 1, 2, 3, 0),
    (2, 4, 8, 4, 3, 2, 2, 2, 1),
    (2, 6, 6, 6, 3, 1, 1, 1, 0),
    (2, 3, 7, 1, 5, 3, 1, 0, 2),
    (3, 4, 4, 2, 3, 2, 2, 1, 1),
    (3, 2, 3, 1, 2, 3, 1, 0, 0),
]


@pytest.mark.parametrize(("rank", "ic", "oc", "groups", "k", "s", "d", "p", "op_"), TORCH_CASES)
@pytest.mark.parametrize("layouts", [("NXC", "XIO"), ("NCX", "OIX"), ("NXC", "OIX"), ("NCX", "XIO")])
@pytest.mark.parametrize("with_bias", [False, True])
def test_equals_torch(rank, ic, oc, groups, k, s, d, p, op_, layouts, with_bias):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(7)
    spatial = (9, 8, 7)[:rank]
    data = rng.standard_normal((2, ic, *spatial))
    bias = rng.standard_normal(oc) if with_bias else None
    data_format, filter_format = layouts

    def mine(function, filter_, **extra):
        x = data if data_format == "NCX" else np.moveaxis(data, 1, -1)
        w = filter_ if filter_format == "OIX" else np.moveaxis(filter_, (1, 0), (-2, -1))
        y = function(
            x, w, bias=bias, strides=(s,) * rank, dilations=(d,) * rank, pads_begin=(p,) * rank, pads_end=(p,) * rank,
            groups=groups, data_format=data_format, filter_format=filter_format, **extra,
        )  # fmt: skip
        return y if data_format == "NCX" else np.moveaxis(y, -1, 1)

    def torchs(name, filter_, **extra):
        function = getattr(torch.nn.functional, f"{name}{rank}d")
        b = None if bias is None else torch.from_numpy(bias)
        x, w = torch.from_numpy(data), torch.from_numpy(filter_)
        return function(x, w, b, stride=s, padding=p, dilation=d, groups=groups, **extra).numpy()

    forward = rng.standard_normal((oc, ic // groups, *(k,) * rank))
    assert_near(mine(reference.convolution, forward), torchs("conv", forward), summed=ic * k**rank)
    backward = rng.standard_normal((ic, oc // groups, *(k,) * rank))
    assert_near(
        mine(reference.convolution_backprop_data, backward, output_padding=(op_,) * rank),
        torchs("conv_transpose", backward, output_padding=op_),
        summed=ic * k**rank,
    )


def test_backprop_is_the_gradient():
    """<conv(x), y> == <x, backprop(y)>, with one filter array for both."""
    rng = np.random.default_rng(3)
    attributes = {"strides": (2, 3), "dilations": (2, 1), "pads_begin": (1, 2), "pads_end": (2, 0), "groups": 2}
    x, w = rng.integers(-4, 5, (2, 10, 11, 4)), rng.integers(-4, 5, (3, 2, 2, 6))
    forward = reference.convolution(x, w, **attributes)
    y = rng.integers(-4, 5, forward.shape)
    unreached = ((10 + 3 - 5) % 2, (11 + 2 - 2) % 3)
    backward = reference.convolution_backprop_data(y, w, output_padding=unreached, **attributes)
    assert backward.shape == x.shape
    assert (forward * y).sum() == (x * backward).sum() != 0


@pytest.mark.parametrize("bias", [None, np.arange(3.0)])
def test_empty_and_constant(bias):
    attributes = {"strides": (1,), "dilations": (1,), "pads_begin": (0,), "pads_end": (0,), "bias": bias}
    constant = np.zeros((2, 5, 3)) + (0 if bias is None else bias)
    no_inputs = reference.convolution(np.ones((2, 5, 0)), np.ones((1, 0, 3)), **attributes)
    np.testing.assert_array_equal(no_inputs, constant)
    no_inputs = reference.convolution_backprop_data(np.ones((2, 5, 0)), np.ones((1, 3, 0)), **attributes)
    np.testing.assert_array_equal(no_inputs, constant)
    no_taps = reference.convolution(np.ones((2, 4, 2)), np.ones((0, 2, 3)), **attributes)
    np.testing.assert_array_equal(no_taps, constant)
    no_taps = reference.convolution_backprop_data(np.ones((2, 6, 2)), np.ones((0, 3, 2)), **attributes)
    np.testing.assert_array_equal(no_taps, constant)
    no_batch = reference.convolution(np.ones((0, 5, 2)), np.ones((1, 2, 3)), **attributes)
    assert no_batch.shape == (0, 5, 3)
    attributes["bias"] = None
    no_outputs = reference.convolution(np.ones((2, 5, 2)), np.ones((1, 2, 0)), **attributes)
    assert no_outputs.shape == (2, 5, 0)
    no_outputs = reference.convolution_backprop_data(np.ones((2, 5, 2)), np.ones((1, 0, 2)), **attributes)
    assert no_outputs.shape == (2, 5, 0)


def test_wrong_arrays():
    attributes = {"strides": (1,), "dilations": (1,), "pads_begin": (0,), "pads_end": (0,)}
    problem = ops.convolution((1, 5, 2), (3, 2, 4), **attributes)
    data, filter_ = np.ones((1, 5, 2)), np.ones((3, 2, 4))
    with pytest.raises(InputError, match=r"data has shape \[1, 6, 2\]; the problem's is \[1, 5, 2\]"):
        reference.compute(problem, np.ones((1, 6, 2)), filter_)
    with pytest.raises(InputError, match="the problem has no bias, but one was given"):
        reference.compute(problem, data, filter_, np.ones(4))
    with pytest.raises(InputError, match="the problem has a bias, but none was given"):
        reference.compute(problem.with_(bias=True), data, filter_)
    with pytest.raises(InvalidProblemError, match=r"bias has shape \[3\]; it must be \[4\]"):
        reference.convolution(data, filter_, np.ones(3), **attributes)
