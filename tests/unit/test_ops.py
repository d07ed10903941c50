"""Shape inference and resolution of attributes."""

from __future__ import annotations

import inspect
from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import given
from strategies import Call, calls

from tvmconv import ops
from tvmconv.errors import InvalidProblemError


@given(calls())
def test_output_extents_follow_the_formula(call: Call):
    problem = call.problem()
    given_ = call.attributes
    end = given_["pads_end"]
    if "output_padding" in given_:
        end = tuple(pe - op for pe, op in zip(end, given_["output_padding"], strict=True))
    assert problem.data_shape == call.data_shape
    assert problem.filter_shape == call.filter_shape
    assert problem.out_spatial == naive.extents(
        call.op,
        problem.in_spatial,
        problem.kernel,
        strides=given_["strides"],
        dilations=given_["dilations"],
        begin=given_["pads_begin"],
        end=end,
    )


@given(calls())
def test_same_pads_give_ceil_of_input_over_stride(call: Call):
    if call.op != "convolution":
        return
    for mode in ("same_upper", "same_lower"):
        problem = call.problem(auto_pad=mode)
        strides = call.attributes["strides"]
        assert problem.out_spatial == tuple(-(-x // s) for x, s in zip(problem.in_spatial, strides, strict=True))


@given(calls())
def test_output_shape_is_the_output_shape(call: Call):
    if call.op == "convolution":
        return
    problem = call.problem()
    resolved = ops.convolution_backprop_data(
        call.data_shape, call.filter_shape, problem.out_spatial, **{**call.attributes, "output_padding": None}
    )
    assert resolved.out_spatial == problem.out_spatial


@pytest.mark.parametrize("auto_pad", [None, "none", "NONE", "None"])
def test_no_auto_pad_is_explicit(auto_pad):
    problem = ops.convolution(
        (1, 9, 2), (3, 2, 5), strides=[1], dilations=[1], pads_begin=[1], pads_end=[1], auto_pad=auto_pad
    )
    assert problem.out_spatial == (9,)
    with pytest.raises(InvalidProblemError, match="pads_begin is missing"):
        ops.convolution((1, 9, 2), (3, 2, 5), strides=[1], dilations=[1], auto_pad=auto_pad)


@pytest.mark.parametrize("container", [list, tuple, np.array, iter, lambda values: (np.int32(v) for v in values)])
def test_any_sequence_of_integers(container):
    problem = ops.convolution_backprop_data(
        container((1, 8, 8, 4)),
        container((3, 3, 2, 4)),
        container((15, 15)),
        strides=container((2, 2)),
        dilations=container((1, 1)),
        groups=np.int64(1),
        bias_shape=container((2,)),
    )
    assert problem.output_shape == (1, 15, 15, 2)
    assert problem.bias
    assert all(type(n) is int for n in (*problem.data_shape, *problem.strides, *problem.kernel, problem.groups))


def test_empty_window():
    problem = ops.convolution((1, 5, 2), (0, 2, 3), strides=[2], dilations=[1], pads_begin=[0], pads_end=[0])
    assert problem.out_spatial == (3,)
    assert problem.is_constant


def test_zero_channels():
    for shape, filter_shape in (((1, 5, 0), (3, 0, 4)), ((1, 5, 2), (3, 2, 0)), ((0, 5, 2), (3, 2, 4))):
        problem = ops.convolution(shape, filter_shape, strides=[1], dilations=[1], auto_pad="valid")
        assert problem.data_shape == shape
        assert problem.is_empty == (0 in problem.output_shape)


def test_weights_format_is_another_name_of_filter_format() -> None:
    call = {"strides": (1,), "dilations": (1,), "auto_pad": "valid"}
    for op in (ops.convolution, ops.convolution_backprop_data):
        alias = op((1, 9, 4), (4, 4, 3), weights_format="OIX", **call)
        assert alias == op((1, 9, 4), (4, 4, 3), filter_format="OIX", **call)
        assert alias == op((1, 9, 4), (4, 4, 3), filter_format="OIX", weights_format="OIX", **call)
        for one, other in (("OIX", "XIO"), ("XIO", "OIX")):
            with pytest.raises(InvalidProblemError, match="one attribute"):
                op((1, 9, 4), (4, 4, 3), filter_format=one, weights_format=other, **call)
        with pytest.raises(InvalidProblemError, match="weights_format is 'IOX'"):
            op((1, 9, 4), (4, 4, 3), weights_format="IOX", **call)


@pytest.mark.parametrize(
    ("function", "attributes"),
    [
        (ops.convolution, ops.ConvolutionAttributes),
        (ops.convolution_backprop_data, ops.BackpropDataAttributes),
    ],
)
def test_the_attributes_of_an_operation_are_those_that_others_hand_on(function: Any, attributes: Any) -> None:
    by_name = {name for name, each in inspect.signature(function).parameters.items() if each.kind is each.KEYWORD_ONLY}
    assert attributes.__annotations__.keys() == by_name - {"bias_shape"}
