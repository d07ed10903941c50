"""Problems with integers: their texts, what is refused, and the reference beside formulas of others."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from tvmconv import ops, reference
from tvmconv.dtypes import QUANTIZED, ROWS, numpy_dtype, types_of
from tvmconv.epilogue import Step
from tvmconv.errors import InvalidProblemError, SignatureError
from tvmconv.fills import exact_case
from tvmconv.lowering.common.quotient_by_products import reciprocal_of
from tvmconv.signature import format_signature, parse_signature

pytestmark = pytest.mark.smoke

SHAPE = "conv2d-n1-i16x6x6-o8x6x6-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO"
TAILS = [
    "s32",
    "s32-zx128-zw-3-bias",
    "u8-zx1-bias_f32-scale-relu-q_0.125_128",
    "f32-bias-silu",
    "bf16-zw7-bias_f32-add",
]
TAILS += ["s8-scale-q_before_reciprocal_1e-05_-128", "u8-bias-q_before_0.5_0", "s8-q_reciprocal_4.2949673e09_127"]


@pytest.mark.parametrize("tail", TAILS)
def test_signatures_are_read_back(tail: str) -> None:
    signature = f"{SHAPE}-u8s8{tail}"
    problem = parse_signature(signature)
    assert format_signature(problem) == signature and problem.is_quantized
    assert parse_signature(format_signature(problem.with_(batch=3))) == problem.with_(batch=3)


def test_floating_point_problems_are_as_before() -> None:
    problem = parse_signature(f"{SHAPE}-f32-bias-relu")
    assert (problem.bias_dtype, problem.zero_point, problem.types) == ("", 0, ("f32", "f32", "f32", "f32"))


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("u8s8u8-scale", r"whose output is u8 must end in q\(scale,zero_point\)"),
        ("u8s8f32-q_0.1_3", "whose output is f32 must not round to integers of 8 bits"),
        ("f32-q_0.1_3", "whose output is f32 must not round"),
        ("u8s8u8-q_0_3", "takes a positive scale and an integer"),
        ("u8s8u8-q_-0.5_3", "takes a positive scale"),
        ("u8s8u8-q_inf_3", "must be finite"),
        ("u8s8u8-q_nan_3", "is not a step"),
        ("u8s8u8-q_0.1_2.5", "takes a positive scale and an integer"),
        ("u8s8u8-q_0.1_256", "zero point of the epilogue's last step is 256; numbers of u8 are 0 to 255"),
        ("u8s8s8-q_0.1_-129", "is -129; numbers of s8 are -128 to 127"),
        ("u8s8u8-q_0.1_3-relu", "q_0.1_3 rounds to integers: it must be the last step"),
        ("u8s8u8-zx256-q_0.1_3", "zero_point is 256; numbers of u8 are 0 to 255"),
        ("u8s8u8-zw200-q_0.1_3", "filter_zero_point is 200; numbers of s8 are -128 to 127"),
        ("f32-zx3", "zero_point is 3; numbers of f32 have none"),
        ("f32-bias_f32", "a bias of f32 has that type"),
        ("u8s8s32-relu", "an output of s32 is the sums and a bias of s32"),
        ("u8s8s32-bias_f32", "an output of s32 is the sums and a bias of s32"),
        ("u8f32u8-q_0.1_3", "field 12, the type, is 'u8f32u8'"),
        ("u8s8s32-zx0", "is not a step"),
    ],
)
def test_bad_problems_say_what_is_wrong(tail: str, message: str) -> None:
    with pytest.raises(SignatureError, match=message):
        parse_signature(f"{SHAPE}-{tail}")


def test_a_scale_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="must be finite"):
        parse_signature(f"{SHAPE}-u8s8u8-q_1_0").with_(epilogue=(Step("q", (float("nan"), 0.0)),))


def test_sums_that_may_pass_32_bits_are_refused() -> None:
    shape = "conv1d-n1-i{0}x4-o8x4-k1-s1-d1-p0_0-g1-NXC-XIO-{1}"
    parse_signature(shape.format(65792, "u8s8s32"))
    for channels, dtype in ((65793, "u8s8s32"), (131071, "s8s8s32"), (33026, "u8s16s32")):
        with pytest.raises(
            SignatureError, match=r"may pass 32 bits; at most \d+ are supported: split the input channels"
        ):
            parse_signature(shape.format(channels, dtype))
    parse_signature(shape.format(65793 * 3 // 2, "u8s8s32-zx128"))  # what is multiplied is 128 at most


@pytest.mark.parametrize(
    ("x", "step", "expected"),
    [
        (0.5, "q(1,1)", 1),  # rounded first: 0
        (0.5, "q_before(1,1)", 2),  # 1.5 to even
        (1.5, "q(1,1)", 3),
        (-0.5, "q(1,1)", 1),
        (0.273939937, "q(0.00214854861,0)", 127),
        (0.273939937, "q_reciprocal(0.00214854861,0)", 128),
        (1e30, "q(1,3)", 255),
        (-np.inf, "q(1,3)", 0),
        (np.nan, "q(1,3)", 3),
        (3.0, "q(4294967295,7)", 7),
    ],
)
def test_worked_numbers_of_rounding(x: float, step: str, expected: int) -> None:
    (parsed,) = ops.parse_epilogue(step)
    assert reference.quantize(parsed, np.array([np.float32(x)], np.float64), "u8").tolist() == [expected]


def test_multiplier_and_through_differ() -> None:
    """SEMANTICS' two rows: a product with one factor, and a scale whose quotient is rounded."""
    problem = ops.convolution(
        (1, 1, 1),
        (1, 1, 1),
        strides=(1,),
        dilations=(1,),
        pads_begin=(0,),
        pads_end=(0,),
        dtype="u8s8u8",
        epilogue="scale-q(1,0)",
    )
    f32 = np.float32
    for total, sx, sw, sy, multiplier, through in ((25, 0.1, 0.02, 0.1, 1, 0), (35, 0.1, 0.3, 0.1, 10, 11)):
        product = f32(sx) * f32(sw)
        data, filter_ = np.full((1, 1, 1), total), np.ones((1, 1, 1))
        by_one = reference.compute(problem, data, filter_, scale=[product / f32(sy)])
        by_two = reference.compute(problem.with_(epilogue=f"scale-q({f32(sy)},0)"), data, filter_, scale=[product])
        assert (by_one.item(), by_two.item()) == (multiplier, through)


def test_the_reference_is_the_formula_in_integers() -> None:
    """Each output by Python's own integers, of drawn shapes and types, with their seed in the message."""
    for seed in range(12):
        draw = random.Random(seed)
        dtype = draw.choice([each for each in QUANTIZED if each.endswith("s32")])
        types, groups = types_of(dtype), draw.choice((1, 2))
        shape, taps = (1, 5, 2 * groups), (draw.randint(1, 3), 2, 3 * groups)
        zeros = [draw.randint(*(ROWS[each].range or (0, 0))) for each in (types.data, types.filter)]
        stride, pad = draw.randint(1, 2), draw.randint(0, 1)
        problem = ops.convolution(shape, taps, strides=(stride,), dilations=(1,), pads_begin=(pad,), pads_end=(1,), groups=groups,
                                  dtype=dtype, zero_point=zeros[0], filter_zero_point=zeros[1], bias_shape=(taps[2],))  # fmt: skip
        arrays, expected = exact_case(problem, seed)
        x, w, b = (
            arrays.data[0].tolist(),
            arrays.filter.tolist(),
            (arrays.bias if arrays.bias is not None else np.zeros(1)).tolist(),
        )
        for y in range(problem.out_spatial[0]):
            for o in range(taps[2]):
                total = b[o]
                for k in range(taps[0]):
                    at = y * stride + k - pad
                    for c in range(2):
                        value = x[at][o // 3 * 2 + c] if 0 <= at < 5 else zeros[0]  # padding is the zero point
                        total += (value - zeros[0]) * (w[k][c][o] - zeros[1])
                assert expected[0, y, o] == total, (seed, dtype, y, o)


def test_fills_reach_both_ends_and_what_lies_between() -> None:
    for output, least, greatest in (("u8", 0, 255), ("s8", -128, 127)):
        problem = parse_signature(f"{SHAPE}-u8s8{output}-zx128-bias-scale-q_0.1_3")
        _, expected = exact_case(problem)
        assert expected.dtype == numpy_dtype(output)
        assert expected.min() == least and expected.max() == greatest and np.unique(expected).size > 50


@pytest.mark.parametrize("seed", range(3))
def test_a_quotient_by_two_products_rounds_as_the_division_does(seed: int) -> None:
    """Of any number within the bounds, and at every tie; the sum of the fused product is of exact fractions."""
    rng = np.random.default_rng(seed)
    scale, zero = np.float32(np.exp(rng.uniform(-12, 6))), int(rng.integers(0, 256))
    products = reciprocal_of(float(scale), -zero, 255 - zero)
    assert products is not None, (seed, scale, zero)
    ties = ((np.arange(-zero, 255 - zero) + 0.5) * np.float64(scale)).astype(np.float32)
    near = (ties.view(np.int32)[rng.integers(0, 255, 3000)] + rng.integers(-3, 4, 3000).astype(np.int32)).view(
        np.float32
    )
    drawn = rng.uniform(-zero * scale, (255 - zero) * scale, 3000).astype(np.float32)
    for x in (*near, *drawn):
        exact = Fraction(float(x)) * Fraction(products[0]) + Fraction(float(x * np.float32(products[1])))
        assert round(Fraction(float(x / scale))) == round(_nearest(exact)), (seed, scale, x)


def _nearest(number: Fraction) -> Fraction:
    """Return the number of f32 that is nearest to a fraction, ties to even."""
    if not number:
        return number
    unit = Fraction(2) ** (int(np.floor(np.log2(float(abs(number))))) - 23)
    return round(number / unit) * unit
