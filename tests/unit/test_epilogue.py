"""Epilogues parse to one canonical form, and say what is wrong with others."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tvmconv import fills, ops, reference
from tvmconv.accuracy import tolerance
from tvmconv.epilogue import STEPS, Step, format_epilogue, is_exact, parse_epilogue
from tvmconv.errors import InputError, InvalidProblemError

SAME = {"strides": (1, 1), "dilations": (1, 1), "auto_pad": "same_upper"}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("add-relu", "add-relu"),
        ("clip(0,6)", "clip_0_6"),
        ("scale-clip( -1, 0.1)-gelu_tanh", "scale-clip_-1_0.1-gelu_tanh"),
        ("clip(0,inf)", "relu"),
        ("relu-relu", "relu"),
        ("relu-clip(-1,6)", "clip_0_6"),
        ("clip(2,3)-clip(5,7)", "clip_5_5"),
        ("clip(-inf,inf)", ""),
        ("leaky(1)-silu", "silu"),
        ("leaky(-0)", "leaky_0"),
        ("elu(0.1)-add", "elu_0.1-add"),
        ("hardsigmoid(0.16666667,0.5)", "hardsigmoid_0.16666667_0.5"),
        ("clip(-1e-5,3.4028235e38)", "clip_-1e-05_3.4028235e38"),
    ],
)
def test_canonical(text, canonical):
    steps = parse_epilogue(text)
    assert format_epilogue(steps) == canonical
    assert steps == parse_epilogue(steps) == (parse_epilogue(canonical) if canonical else ())


def test_numbers_read_back_equal():
    magnitudes = 10.0 ** np.arange(-35, 35)
    for number in (np.random.default_rng(1).standard_normal((10, 70)) * magnitudes).astype(np.float32).flat:
        steps = (Step("leaky", (float(number),)),)
        assert parse_epilogue(format_epilogue(steps)) == steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not a step"),
        ("relux", "'relux' is not a step.*allowed, joined by hyphens, are scale, add"),
        ("add-", "'add-' is not a step"),
        ("relu_1", "'relu_1'; write relu, without numbers"),
        ("clip(1)", r"write clip\(lo,hi\)"),
        ("clip(3,1)", "lo <= hi"),
        ("clip(inf,inf)", "lo below inf"),
        ("leaky(nan)", "'leaky_nan' is not a step"),
        ("leaky(1e39)", "finite f32"),
        ("elu(inf)", "finite f32"),
        ("add-relu-add", "add takes the array residual, so it may occur only once"),
        ("scale-scale", "scale takes the array scale"),
        (1, "epilogue is 1; it must be a string such as 'add-relu'"),
        ([1], "it must be a string such as 'add-relu'"),
        ([Step("swish")], "the step 'swish'; allowed: scale"),
    ],
)
def test_bad_epilogues(text, message):
    with pytest.raises(InvalidProblemError, match=message):
        parse_epilogue(text)


def test_a_problem_takes_an_epilogue_as_text():
    problem = ops.convolution((1, 4, 4, 2), (1, 1, 2, 3), epilogue="scale-add-prelu", dtype="bf16", **SAME)
    assert problem.operands == {
        "data": ((1, 4, 4, 2), "bf16"),
        "filter": ((1, 1, 2, 3), "bf16"),
        "scale": ((3,), "f32"),
        "slope": ((3,), "f32"),
        "residual": ((1, 4, 4, 3), "bf16"),
    }
    assert problem.nbytes == 2 * (32 + 6 + 48 + 48) + 4 * 6
    assert problem.with_(epilogue="relu") == ops.convolution(
        (1, 4, 4, 2), (1, 1, 2, 3), epilogue="clip(0,inf)", dtype="bf16", **SAME
    )


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("name", STEPS)
def test_reference_follows_the_formulas(name, data_format):
    numbers = {"clip": "(-1,2)", "leaky": "(0.1)", "elu": "(1.5)", "hardsigmoid": "(0.2,0.5)"}.get(name, "")
    shape = (2, 4, 5, 3) if data_format == "NXC" else (2, 3, 4, 5)
    problem = ops.convolution(
        shape, (3, 3, 3, 4), bias_shape=(4,), data_format=data_format, epilogue=name + numbers, **SAME
    )
    arrays = fills.random_fill(problem)
    x = reference.compute(problem.with_(epilogue=()), arrays.data, arrays.filter, arrays.bias)
    along = (1, -1, 1, 1) if data_format == "NCX" else (-1,)
    erf = np.vectorize(math.erf)
    expected = {
        "scale": lambda: x * arrays.scale.reshape(along),
        "add": lambda: x + arrays.residual,
        "relu": lambda: np.clip(x, 0, None),
        "clip": lambda: np.clip(x, -1, 2),
        "leaky": lambda: x * np.where(x < 0, 0.1, 1),
        "prelu": lambda: x * np.where(x < 0, arrays.slope.reshape(along), 1),
        "elu": lambda: np.where(x > 0, x, 1.5 * (np.exp(np.minimum(x, 0)) - 1)),
        "sigmoid": lambda: 1 / (1 + np.exp(-x)),
        "tanh": lambda: np.tanh(x),
        "hardsigmoid": lambda: np.clip(0.2 * x + 0.5, 0, 1),
        "silu": lambda: x / (1 + np.exp(-x)),
        "hardswish": lambda: x * np.clip(x / 6 + 0.5, 0, 1),
        "gelu": lambda: x / 2 * (1 + erf(x / np.sqrt(2))),
        "gelu_tanh": lambda: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    }[name]()
    got = reference.compute(problem, **arrays.given())
    np.testing.assert_allclose(got, expected, **tolerance(expected, dtype="float32"))
    values = fills.exact_fill(problem).given()
    assert list(values) == list(problem.operands)
    if is_exact(problem.epilogue) and not numbers:
        assert (reference.compute(problem, **values) == np.float32(reference.compute(problem, **values))).all()


def test_the_reference_asks_for_what_the_epilogue_takes():
    problem = ops.convolution((1, 4, 4, 2), (1, 1, 2, 3), epilogue="add", **SAME)
    data, taps, *_ = fills.random_fill(problem)
    with pytest.raises(InputError, match="the problem has a residual, but none was given"):
        reference.compute(problem, data, taps)
    with pytest.raises(InputError, match="the problem has no slope, but one was given"):
        reference.compute(problem, data, taps, residual=np.zeros((1, 4, 4, 3)), slope=np.zeros(3))
