"""Elementary functions of a network beside NumPy's of doubles: zeros, infinities, what is not a number, and everywhere between."""

from __future__ import annotations

from functools import partial
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvmconv.accuracy import rounding

pytest.importorskip("tvm")
from relax_modules import computed, relax_module
from tvm import relax

from tests.numerics.test_network import convolved, module
from tvmconv.network.compile import build
from tvmconv.network.passes import use_kernels
from tvmconv.runtime.networks.network import load_network

Array = np.ndarray[Any, Any]
# Relative to the answer, wherever that is a normal number; else to the least that is one.
ALLOWED, LEAST = 3e-7, 2.0**-126
SPECIAL = np.array(
    [0, 1, 0.5, np.inf, np.nan, 2, 3, 1e-45, 3e-45, 1e-38, 3.4e38, 1e-10, 89.3, 88.7, 104, 2.5, 0.25, 1.5, 0.99999994, 1.0000001,
     1e10, 2**24 + 2, 3.9, 4.1, 0.41421357, 2.4142137, 10, 9.999999, 1e4],
    np.float32,
)  # fmt: skip
SIGNED = np.concatenate([SPECIAL, -SPECIAL])
# Of sines of more the neighbours are far.
NEAR = SIGNED[~(np.abs(SIGNED) > 2.0**30)]
FUNCTIONS: dict[str, tuple[Any, Array, float, float]] = {
    "acos": (np.arccos, SIGNED, -1, 1),
    "acosh": (np.arccosh, SIGNED, 1, 50),
    "asin": (np.arcsin, SIGNED, -1, 1),
    "asinh": (np.arcsinh, SIGNED, -50, 50),
    "atan": (np.arctan, SIGNED, -5, 5),
    "atanh": (np.arctanh, SIGNED, -1, 1),
    "cos": (np.cos, NEAR, -30, 30),
    "cosh": (np.cosh, SIGNED, -89.4, 89.4),
    "erf": (np.vectorize(erf, otypes=[float]), SIGNED, -5, 5),
    "exp": (np.exp, SIGNED, -104, 88.7),
    "log": (np.log, SIGNED, 0, 3),
    "round": (np.round, SIGNED, -9, 9),
    "sin": (np.sin, NEAR, -30, 30),
    "sinh": (np.sinh, SIGNED, -89.4, 89.4),
    "softplus": (partial(np.logaddexp, 0), SIGNED, -104, 30),
    "tan": (np.tan, NEAR, -30, 30),
}


def spread(rng: Any, count: int = 5000) -> Array:
    """Return numbers of both signs and all sizes."""
    return (np.exp(rng.uniform(-80, 80, count)) * rng.choice([-1, 1], count)).astype(np.float32)


def operator(name: str) -> Any:
    return getattr(relax.op, name, None) or getattr(relax.op.nn, name)


def check(name: str, answer: Array, right: Array) -> None:
    with np.errstate(all="ignore"):
        rounded = right.astype(np.float32)
        same = (answer == rounded) & (np.signbit(answer) == np.signbit(rounded)) | (
            np.isnan(answer) & np.isnan(rounded)
        )
        error = np.abs(answer.astype(np.float64) - right) / np.maximum(np.abs(right), LEAST)
    assert not np.any(~same & ~(error <= ALLOWED)), (name, error[~same & ~(error <= ALLOWED)])


def test_functions_of_one_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    given = {}
    for name, (_, special, low, high) in FUNCTIONS.items():
        sizes = spread(rng)
        sizes = sizes[np.abs(sizes) < 2.0**30] if special is NEAR else sizes
        given[name] = np.concatenate([special, rng.uniform(low, high, 5000).astype(np.float32), sizes])

    def make(builder: Any, *data: Any) -> Any:
        return builder.emit(relax.Tuple([builder.emit(operator(name)(x)) for name, x in zip(given, data, strict=True)]))

    build(module(make, [each.shape for each in given.values()]), tmp_path / "network.so")
    answers = load_network(tmp_path / "network.so")(**{f"x{at}": each for at, each in enumerate(given.values())})
    for (name, array), answer in zip(given.items(), answers.values(), strict=True):
        with np.errstate(all="ignore"):
            check(name, answer, FUNCTIONS[name][0](array.astype(np.float64)))


def test_functions_of_two_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = [np.meshgrid(SIGNED, SIGNED), (spread(rng), spread(rng)), (spread(rng), rng.uniform(-3, 3, 5000)),
             (rng.uniform(0.9, 1.1, 5000), rng.uniform(-800, 800, 5000)),
             (rng.uniform(-9, 9, 5000), rng.integers(-9, 10, 5000))]  # fmt: skip
    left, right = (
        np.concatenate([np.ravel(each) for each in side]).astype(np.float32) for side in zip(*pairs, strict=True)
    )

    def make(builder: Any, x: Any, y: Any) -> Any:
        power = builder.emit(relax.op.power(x, y))
        return builder.emit(relax.Tuple([power, builder.emit(relax.op.atan2(x, y))]))

    build(module(make, [left.shape, right.shape]), tmp_path / "network.so")
    answers = load_network(tmp_path / "network.so")(x0=left, x1=right).values()
    for (name, function), answer in zip({"power": np.power, "atan2": np.arctan2}.items(), answers, strict=True):
        with np.errstate(all="ignore"):
            check(name, answer, function(left.astype(np.float64), right.astype(np.float64)))


def test_remainders_are_exact(tmp_path: Path) -> None:
    """Of numbers of all sizes by one another, by whole multiples and their neighbours, and by constants: NumPy's bits."""
    rng = np.random.default_rng(2)
    whole = spread(rng) * rng.integers(1, 1 << 12, 5000).astype(np.float32)
    beside = np.nextafter(whole, rng.choice([-np.inf, np.inf], 5000)).astype(np.float32)
    pairs = np.meshgrid(SIGNED, SIGNED)
    left = np.concatenate([spread(rng), whole, beside, pairs[0].ravel()]).astype(np.float32)
    right = np.concatenate([spread(rng), spread(rng), whole / 3, pairs[1].ravel()]).astype(np.float32)
    divisors = np.array([0.7, 3, 4, -0.1, 1e-30, 3e38, 2**-140], np.float32)

    def make(builder: Any, x: Any, y: Any) -> Any:
        others = [y, *(relax.const(each) for each in divisors)]
        return builder.emit(relax.Tuple([builder.emit(relax.op.floor_mod(x, each)) for each in others]))

    build(module(make, [left.shape, right.shape]), tmp_path / "network.so")
    answers = load_network(tmp_path / "network.so")(x0=left, x1=right).values()
    for other, answer in zip([right, *divisors], answers, strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(answer, np.mod(left, other))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_divisions_of_integers_do_not_trap(dtype: str) -> None:
    """By 0, and of the least by -1, they are NumPy's; by fixed numbers, too."""
    info = np.iinfo(dtype)
    x, y = (np.array(each, dtype) for each in ([info.min, info.max, 0, 1, 7], [0, 1, 2, 3, info.max]))
    y = np.concatenate([y, -y[1:]])[:, None]
    names = ("divide", "floor_divide", "mod", "floor_mod")

    def make(builder: Any, x: Any, y: Any) -> Any:
        pairs = [(x, y), (x, relax.const(y0, dtype)), (x, relax.const(2, dtype))]
        found = [builder.emit(getattr(relax.op, name)(*pair)) for pair in pairs for name in names]
        return builder.emit(relax.Tuple(found))

    y0 = y.copy()
    answers = iter(computed(relax_module(make, [x.shape, y.shape], dtype), x, y))
    for divisor in (y, y0, np.array(2, dtype)):
        with np.errstate(all="ignore"):
            floors, rests = np.floor_divide(x, divisor), np.mod(x, divisor)
            left = np.where(divisor == 0, 0, np.fmod(x, divisor)).astype(dtype)
            is_up = (left != 0) & ((left < 0) != (divisor < 0)) & (np.broadcast_to(divisor, left.shape) != 0)
        for right in ((floors + is_up).astype(dtype), floors, left, rests):
            np.testing.assert_array_equal(next(answers), right)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_powers_of_integers(dtype: str) -> None:
    """Squares of some bases wrap to 0; quotients by a power round to 0."""
    info = np.iinfo(dtype)
    base = np.array([0, 1, -1, 2, -3, 12, 2 ** (info.bits // 2), -(2 ** (info.bits // 2)), info.max, info.min], dtype)
    exponent = np.arange(-3, 9, dtype=dtype)[:, None]
    powers = relax_module(lambda builder, x, y: relax.op.power(x, y), [base.shape, exponent.shape], dtype)
    (answer,) = computed(powers, base, exponent)
    whole = np.power(base, np.maximum(exponent, 0))
    below = np.where(base == -1, 1 - 2 * (exponent & 1), base == 1)
    np.testing.assert_array_equal(answer, np.where(exponent < 0, below, whole))


def test_functions_of_functions_are_joined(tmp_path: Path) -> None:
    """Also behind a pad, where what lies outside is not read, and of tensors that are broadcast."""
    rng = np.random.default_rng(0)
    array, exponent = (
        rng.uniform(0.1, 3, (2, 5, 21)).astype(np.float32),
        np.array([[0.3], [1.7], [2], [-1.1], [0]], np.float32),
    )

    def make(builder: Any, data: Any) -> Any:
        value = builder.emit(relax.op.power(data, relax.const(exponent)))
        for operator in (relax.op.sin, relax.op.exp, relax.op.log, relax.op.erf, relax.op.tan, relax.op.atan):
            value = builder.emit(operator(value))
        padded = builder.emit(relax.op.nn.pad(value, [0, 0, 0, 0, 3, 4], pad_value=0.5))
        return builder.emit(relax.op.exp(padded))

    build(module(make, [array.shape]), tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    right = np.power(array.astype(np.float64), exponent)
    for function in (np.sin, np.exp, np.log, np.vectorize(erf, otypes=[float]), np.tan, np.arctan):
        right = function(right)
    right = np.exp(np.pad(right, ((0, 0), (0, 0), (3, 4)), constant_values=0.5))
    (answer,) = network(x0=array).values()
    np.testing.assert_allclose(answer, right, rtol=rounding("float32", layers=2))
    assert len(network.operators({"x0": array}, 0.001)) == 1


def test_softplus_and_mish(tmp_path: Path) -> None:
    """By other factors and from other thresholds on, and its hyperbolic tangent, which is a function of its own."""
    rng = np.random.default_rng(0)
    array = np.concatenate([SIGNED, rng.uniform(-80, 30, 5000).astype(np.float32)])

    def make(builder: Any, x: Any) -> Any:
        steep = builder.emit(relax.op.nn.softplus(x, beta=2.5, threshold=3.0))
        plain = builder.emit(relax.op.nn.softplus(x))
        return builder.emit(relax.Tuple([steep, builder.emit(relax.op.tanh(plain))]))

    build(module(make, [array.shape]), tmp_path / "network.so")
    steep, gate = load_network(tmp_path / "network.so")(x0=array).values()
    with np.errstate(all="ignore"):
        x, scaled = array.astype(np.float64), (array * np.float32(2.5)).astype(np.float64)
        check("softplus", steep, np.where(scaled > 3, x, np.logaddexp(0, scaled) / 2.5))
        check("mish", gate, np.tanh(np.logaddexp(0, x)))


def test_softplus_keeps_channels_last() -> None:
    def make(builder: Any, data: Any) -> Any:
        return convolved(builder, builder.emit(relax.op.nn.softplus(convolved(builder, data))))

    # Of the input and of the output.
    assert str(use_kernels(module(make), layout="NXC")).count("permute_dims") == 2


def test_sines_and_cosines() -> None:
    data = np.concatenate([np.linspace(-40, 40, 4001), np.geomspace(1e-30, 1e12, 3999), np.geomspace(1e13, 3e38, 80)])
    data = np.concatenate([data, -data]).astype(np.float32)
    both = relax_module(
        lambda builder, x: relax.op.concat([builder.emit(relax.op.sin(x)), builder.emit(relax.op.cos(x))], 0),
        [data.shape],
    )
    (answer,) = computed(both, data, layout="NCX")
    right = np.concatenate([np.sin(data.astype(np.float64)), np.cos(data.astype(np.float64))])
    known = np.tile(np.abs(data) <= 1e12, 2)
    assert np.abs(answer - right)[known].max() < 2e-7 and np.abs(answer).max() <= 1
