"""Signatures format, parse back exactly, and say which field is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from strategies import Call, calls

from tvmconv import ops
from tvmconv.errors import SignatureError
from tvmconv.signature import format_signature, parse_signature

pytestmark = pytest.mark.smoke

GOOD = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"
SAME = {"strides": (1, 1), "dilations": (1, 1), "auto_pad": "same_upper"}


def test_example():
    problem = ops.convolution((1, 56, 56, 64), (3, 3, 64, 64), bias_shape=(64,), **SAME)
    assert format_signature(problem) == GOOD
    assert parse_signature(GOOD) == problem


def test_backprop_example():
    problem = ops.convolution_backprop_data(
        (2, 16, 8, 8), (16, 8, 4, 4), (16, 16), strides=(2, 2), dilations=(1, 1), data_format="NCX",
        filter_format="OIX", dtype="bf16",
    )  # fmt: skip
    signature = "backprop2d-n2-i16x8x8-o8x16x16-k4x4-s2x2-d1x1-p1x1_1x1-g1-NCX-OIX-bf16"
    assert format_signature(problem) == signature
    assert parse_signature(signature) == problem


@given(calls())
def test_round_trip(call: Call):
    problem = call.problem()
    signature = format_signature(problem)
    assert parse_signature(signature) == problem
    assert format_signature(parse_signature(signature)) == signature
    assert len(signature) < 256  # it names a file
    assert set(signature) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@given(calls(), calls())
def test_distinct_problems_have_distinct_signatures(one: Call, other: Call):
    assert (format_signature(one.problem()) == format_signature(other.problem())) == (one.problem() == other.problem())


def test_longest_signature_fits():
    """Every number at its largest."""
    huge = 2**31 - 1
    signature = "-".join(
        (f"backprop3d-n{huge}", f"i0x{huge}x{huge}x{huge}", f"o0x{huge}x{huge}x{huge}", "k1x1x1", "s1x1x1", "d1x1x1",
         "p0x0x0_0x0x0", f"g{huge}", "NXC", "XIO", "bf16", "bias")
    )  # fmt: skip
    assert format_signature(parse_signature(signature)) == signature


def test_parsing_canonicalizes():
    canonical = "conv1d-n1-i2x5-o4x1-k3-s3-d1-p0_0-g1-NXC-XIO-f32"
    for written in (canonical, canonical.replace("s3", "s4"), canonical.replace("s3-d1-p0_0", "s7-d1-p0_1")):
        assert format_signature(parse_signature(written)) == canonical


MALFORMED = [
    ("", "field 1, the operation and its spatial rank, is ''"),
    ("conv2d", "field 2, the batch, is missing; it must look like n1"),
    (GOOD.replace("conv2d", "conv4d"), "field 1, .* is 'conv4d'; it must look like conv2d or backprop2d"),
    (GOOD.replace("conv2d", "Conv2d"), "field 1, .* is 'Conv2d'"),
    (GOOD.replace("conv2d", "deconv2d"), "field 1, .* is 'deconv2d'"),
    (GOOD.replace("n1", "1"), "field 2, the batch, is '1'"),
    (GOOD.replace("-n1-", "-n-"), "field 2, the batch, is 'n'"),
    (GOOD.replace("-n1-", "-n+1-"), r"field 2, the batch, is 'n\+1'"),
    (GOOD.replace("-n1-", "-n-1-"), "field 2, the batch, is 'n'"),
    (GOOD.replace("-n1-", "-n01-"), "field 2, the batch, is 'n01'"),
    (GOOD.replace("-n1-", "-n1_0-"), "field 2, the batch, is 'n1_0'"),
    (GOOD.replace("-n1-", "-n١-"), "field 2, the batch, is 'n١'"),  # noqa: RUF001
    (GOOD.replace("-n1-", "-n²-"), "field 2, the batch, is 'n²'"),
    (GOOD.replace("i64x56x56", "i64x56x"), "field 3, the input's channels and spatial extents, is 'i64x56x'"),
    (GOOD.replace("i64x56x56", "i64*56*56"), "field 3, .* is"),
    (GOOD.replace("i64x56x56", "i64X56X56"), "field 3, .* is"),
    (GOOD.replace("-o64x56x56", ""), "field 4, the output's channels and spatial extents, is 'k3x3'"),
    (GOOD.replace("k3x3", "k3.5x3"), "field 5, the filter's taps, is 'k3.5x3'"),
    (GOOD.replace("s1x1", "s"), "field 6, the strides, is 's'"),
    (GOOD.replace("d1x1", "d1e1x1"), "field 7, the dilations, is 'd1e1x1'"),
    (GOOD.replace("p1x1_1x1", "p1x1"), "field 8, the pads at the begin and the end, is 'p1x1'"),
    (GOOD.replace("g1", "g"), "field 9, the groups, is 'g'"),
    (GOOD.replace("NXC", "NHWC"), "field 10, the data format, is 'NHWC'; it must look like NXC or NCX"),
    (GOOD.replace("NXC", "nxc"), "field 10, the data format, is 'nxc'"),
    (GOOD.replace("XIO", "HWIO"), "field 11, the filter format, is 'HWIO'; it must look like XIO or OIX"),
    (GOOD.replace("f32", "float32"), "field 12, the type, is 'float32'; it must look like f32 or f16 or bf16"),
    (GOOD.replace("-f32-bias", ""), "field 12, the type, is missing"),
    (GOOD + "\n", r"ends in 'bias\\n'; allowed are bias and an epilogue"),
    (GOOD[: -len("-bias")] + "\n", r"field 12, the type, is 'f32\\n'"),
    (" " + GOOD, "field 1, .* is ' conv2d'"),
    (GOOD + "-", "ends in 'bias-'"),
    (GOOD.removesuffix("bias"), "ends in '-'"),
    (GOOD + "-bias", "ends in 'bias-bias'"),
    (GOOD + "-relux", "ends in 'bias-relux'"),
    (GOOD + "\0", "ends in"),
    (GOOD.replace("n1", "n" + "1" * 600), "has 672 characters; a signature has at most 512"),
    (GOOD.replace("n1", "n" + "9" * 300), "batch is an integer of 997 bits; at most 2147483647"),
    (None, "None is a NoneType, not a signature"),
    (b"conv2d", "b'conv2d' is a bytes, not a signature"),
    (7, "7 is a int, not a signature"),
]
CONTRADICTORY = [
    (GOOD.replace("conv2d", "conv1d"), "says 1d, but i64x56x56 has 2 spatial extents"),
    (GOOD.replace("i64x56x56", "i64"), "says 2d, but i64 has 0 spatial extents"),
    (GOOD.replace("o64x56x56", "o64x56"), r"out_spatial is \[56\], 1 numbers; 2 are needed"),
    (GOOD.replace("o64x56x56", "o64x56x55"), "spatial axis 1: out_spatial is 55, but the other numbers give 56"),
    (GOOD.replace("k3x3", "k3"), r"kernel is \[3\], 1 numbers; 2 are needed"),
    (GOOD.replace("k3x3", "k99x3"), "spatial axis 0: the filter spans 99"),
    (GOOD.replace("s1x1", "s1x1x1"), r"strides is \[1, 1, 1\], 3 numbers; 2 are needed"),
    (GOOD.replace("s1x1", "s0x1"), r"strides\[0\] is 0"),
    (GOOD.replace("d1x1", "d1x0"), r"dilations\[1\] is 0"),
    (GOOD.replace("g1", "g0"), "groups is 0"),
    (GOOD.replace("g1", "g3"), "in_channels is 64, which groups=3 does not divide"),
    (GOOD.replace("i64x56x56", "i64x0x56"), r"in_spatial\[0\] is 0"),
    (GOOD.replace("n1", "n99999999"), "elements; at most 2147483647 are supported"),
    (
        GOOD.replace("conv2d", "backprop2d").replace("o64x56x56", "o64x99x56").replace("_1x1", "_2x1"),
        "out_spatial is 99",
    ),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED + CONTRADICTORY)
def test_bad_signatures(text, message):
    with pytest.raises(SignatureError, match=message) as caught:
        parse_signature(text)
    assert len(str(caught.value)) < 1000
