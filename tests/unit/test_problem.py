"""A Problem is canonical: one convolution written in two ways is one Problem, with an unchanged answer."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from strategies import Call, calls

from tvmconv import ops, reference
from tvmconv.errors import InvalidProblemError
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature

BASE = Problem("convolution", 1, 4, (8, 8), 6, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
AXIS = {"dilations": [1], "pads_begin": [0], "pads_end": [0]}


@settings(max_examples=60)
@given(calls(largest=5, channels=2))
def test_canonicalization_never_changes_the_answer(call: Call):
    problem, given_ = call.problem(), call.attributes
    rng = np.random.default_rng(0)
    data = rng.integers(-9, 10, call.data_shape).astype(np.float64)
    filter_ = rng.integers(-9, 10, call.filter_shape).astype(np.float64)
    end = given_["pads_end"]
    if "output_padding" in given_:
        end = tuple(pe - op for pe, op in zip(end, given_["output_padding"], strict=True))
    expected = naive.compute(
        call.op,
        data if problem.data_format == "NXC" else np.moveaxis(data, 1, -1),
        filter_ if problem.filter_format == "XIO" else np.moveaxis(filter_, (1, 0), (-2, -1)),
        strides=given_["strides"],
        dilations=given_["dilations"],
        begin=given_["pads_begin"],
        end=end,
        groups=problem.groups,
    )
    bias = None
    if problem.bias:
        bias = rng.integers(-9, 10, problem.bias_shape).astype(np.float64)
        expected = expected + bias
    actual = reference.compute(problem, data, filter_, bias)
    np.testing.assert_array_equal(actual if problem.data_format == "NXC" else np.moveaxis(actual, 1, -1), expected)


@given(calls())
def test_canonical_is_a_fixed_point(call: Call):
    problem = call.problem()
    assert problem.with_() == problem
    assert problem.with_(bias=not problem.bias) != problem


@given(calls())
def test_pads_from_auto_pad_are_those_written_out(call: Call):
    for mode in ("valid", "same_upper", "SAME_LOWER"):
        if call.op == "convolution" and mode == "valid":
            spans = [d * (k - 1) + 1 for k, d in zip(call.problem().kernel, call.attributes["dilations"], strict=True)]
            if any(span > x for span, x in zip(spans, call.problem().in_spatial, strict=True)):
                continue
        problem = call.problem(auto_pad=mode)
        assert call.problem(pads_begin=problem.pads_begin, pads_end=problem.pads_end) == problem or (
            # An end pad that output padding took back cannot be lowered by it again.
            call.op != "convolution" and any(call.attributes["output_padding"])
        )


def test_output_padding_is_a_lower_end_pad():
    def problem(end: int, output_padding: int) -> Problem:
        return ops.convolution_backprop_data(
            (1, 5, 2), (4, 3, 2), strides=[2], dilations=[1], pads_begin=[1], pads_end=[end],
            output_padding=[output_padding],
        )  # fmt: skip

    assert problem(3, 2) == problem(1, 0) == problem(2, 1)
    assert problem(0, 1) != problem(0, 0)  # one more zero


def test_output_shape_is_its_pads():
    written = ops.convolution_backprop_data((1, 5, 2), (4, 3, 2), [10], strides=[2], dilations=[1])
    assert written == ops.convolution_backprop_data(
        (1, 5, 2), (4, 3, 2), strides=[2], dilations=[1], pads_begin=[1], pads_end=[1]
    )


def test_unused_end_pad():
    def problem(end: int) -> Problem:
        return ops.convolution((1, 9, 2), (3, 2, 4), strides=[4], dilations=[1], pads_begin=[0], pads_end=[end])

    assert problem(0) == problem(1)
    assert problem(1).pads_end == (0,)
    assert problem(2) == problem(5) != problem(1)


def test_dilation_of_one_tap():
    def problem(op, dilation: int) -> Problem:
        return op((1, 9, 2), (1, 2, 2), strides=[2], **{**AXIS, "dilations": [dilation]})

    assert problem(ops.convolution, 1) == problem(ops.convolution, 7)
    assert problem(ops.convolution_backprop_data, 1) == problem(ops.convolution_backprop_data, 7)


@pytest.mark.parametrize("x", [3, 4, 5])
def test_stride_of_a_single_output(x):
    """It takes no part, whether or not elements of the input are left over."""
    problems = {ops.convolution((1, x, 2), (3, 2, 2), strides=[s], **AXIS) for s in range(x - 2, 9)}
    assert len(problems) == 1
    (problem,) = problems
    assert problem.out_spatial == (1,)
    assert problem.with_() == problem


def test_stride_of_a_single_input():
    problems = {ops.convolution_backprop_data((1, 1, 2), (3, 2, 2), strides=[s], **AXIS) for s in range(1, 5)}
    assert {problem.strides for problem in problems} == {(1,)}
    assert len(problems) == 1


def test_properties():
    problem = BASE.with_(groups=2, bias=True, dtype="bf16")
    assert problem.rank == 2
    assert problem.data_shape == (1, 8, 8, 4)
    assert problem.with_(data_format="NCX").data_shape == (1, 4, 8, 8)
    assert problem.output_shape == (1, 8, 8, 6)
    assert problem.filter_shape == (3, 3, 2, 6)
    assert problem.with_(filter_format="OIX").filter_shape == (6, 2, 3, 3)
    assert problem.bias_shape == (6,)
    assert problem.flops == 2 * 64 * 9 * 6 * 2
    assert problem.nbytes == 2 * (256 + 108 + 384 + 6)
    assert problem.products == 9 * 2
    assert not (problem.is_empty or problem.is_constant or problem.is_depthwise)
    assert BASE.with_(groups=2, in_channels=2).is_depthwise
    assert not BASE.with_(in_channels=1).is_depthwise


@settings(max_examples=200)
@given(calls(largest=5, channels=1, bias=False))
def test_constant_is_what_no_product_with_data_changes(call: Call):
    problem = call.problem()
    ones = reference.compute(problem, np.ones(problem.data_shape), np.ones(problem.filter_shape))
    assert problem.is_constant == (not ones.any() and not problem.is_empty)


@pytest.mark.parametrize(
    ("signature", "constant"),
    [
        # Data between taps that are a dilation apart; and one column more, which a tap meets.
        ("conv1d-n1-i4x1-o4x2-k2-s4-d4-p2_6-g1-NXC-XIO-f32", True),
        ("conv1d-n1-i4x3-o4x2-k2-s4-d4-p2_4-g1-NXC-XIO-f32", False),
        # Along one of two axes.
        ("conv2d-n1-i4x5x1-o4x5x2-k1x2-s1x4-d1x4-p0x2_0x6-g1-NXC-XIO-f32", True),
        # Outputs past all products.
        ("backprop1d-n1-i4x3-o4x3-k3-s2-d1-p7_0-g1-NXC-XIO-f32", True),
        ("backprop1d-n1-i4x3-o4x3-k3-s2-d1-p6_0-g1-NXC-XIO-f32", False),
        # Outputs between the products: a stride of 5, and 3 outputs from the second on.
        ("backprop1d-n1-i4x3-o4x3-k1-s5-d1-p1_7-g1-NXC-XIO-f32", True),
        ("backprop1d-n1-i4x3-o4x5-k1-s5-d1-p1_5-g1-NXC-XIO-f32", False),
    ],
)
def test_constant_where_taps_meet_padding_alone(signature: str, constant: bool) -> None:
    problem = parse_signature(signature)
    assert problem.is_constant == constant
    ones = reference.compute(problem, np.ones(problem.data_shape), np.ones(problem.filter_shape))
    assert ones.any() != constant


@settings(max_examples=60)
@given(calls(largest=5, channels=2, bias=False))
def test_products_bounds_what_meets_in_one_output(call: Call):
    problem = call.problem()
    count = reference.compute(problem, np.ones(problem.data_shape), np.ones(problem.filter_shape)).max()
    assert count <= problem.products


def test_products_of_backprop_counts_taps_of_one_phase():
    problem = ops.convolution_backprop_data(
        (1, 9, 9, 8), (4, 3, 5, 8), strides=[2, 3], dilations=[1, 2], pads_begin=[0, 0], pads_end=[0, 0]
    )
    assert problem.products == 2 * 1 * 8


def test_numbers_become_plain_ints():
    problem = BASE.with_(strides=[np.int64(1), np.int32(1)], kernel=np.array([3, 3]), batch=np.int8(1))
    assert problem == BASE
    assert hash(problem) == hash(BASE)
    assert all(type(n) is int for n in (*problem.strides, *problem.kernel, problem.batch))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op": "conv"}, "op is 'conv'; allowed: convolution, convolution_backprop_data"),
        ({"dtype": "f64"}, "dtype is 'f64'; allowed: f32, f16, bf16"),
        ({"data_format": "NHWC"}, "data_format is 'NHWC'; allowed: NXC, NCX"),
        ({"filter_format": None}, "filter_format is None; allowed: XIO, OIX"),
        ({"bias": 1}, "bias is 1; it must be True or False"),
        ({"batch": -1}, "batch is -1; it must be an integer of at least 0"),
        ({"batch": "1"}, "batch is '1', a str; it must be an integer"),
        ({"groups": 0}, "groups is 0; it must be an integer of at least 1"),
        ({"groups": 4}, "out_channels is 6, which groups=4 does not divide"),
        ({"in_channels": 5, "groups": 2}, "in_channels is 5, which groups=2 does not divide"),
        ({"in_spatial": ()}, "there are 0 spatial axes; 1, 2 or 3 are supported"),
        ({"in_spatial": (8, 8, 8, 8)}, "there are 4 spatial axes; 1, 2 or 3 are supported"),
        ({"out_spatial": (8,)}, r"out_spatial is \[8\], 1 numbers; 2 are needed"),
        ({"out_spatial": (8, 9)}, "spatial axis 1: out_spatial is 9, but the other numbers give 8"),
        ({"kernel": (3, 11)}, "spatial axis 1: the filter spans 11 .* more than the input 8 with pads 1 and 1"),
        ({"strides": (0, 1)}, r"strides\[0\] is 0; it must be an integer of at least 1"),
        ({"pads_end": (1, -1)}, r"pads_end\[1\] is -1; it must be an integer of at least 0"),
        ({"batch": 2**25}, "data would have 8589934592 elements; at most 2147483647 are supported"),
    ],
)
def test_wrong_fields(changes, message):
    with pytest.raises(InvalidProblemError, match=message):
        BASE.with_(**changes)


def test_padding_too_is_within_32_bits():
    far = {"pads_begin": [2**20, 2**20], "pads_end": [0, 0], "strides": [2**20, 2**20], "dilations": [1, 1]}
    with pytest.raises(InvalidProblemError, match="data with its pads would have"):
        ops.convolution((1, 1, 1, 1), (1, 1, 1, 1), **far)
    with pytest.raises(InvalidProblemError, match="the output with its pads would have"):
        ops.convolution_backprop_data(
            (1, 2, 2, 1), (2, 2, 1, 1), **{**far, "strides": [2**20, 2**20], "output_padding": [0, 0]}
        )
