"""Joins of 16-bit filters only where they round no more than the branches: the rule's bound beside measured errors."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest

pytest.importorskip("tvm")
torch = pytest.importorskip("torch")
from tvmconv.fills import numpy_dtype  # noqa: E402
from tvmconv.network.algebra.maps import Array, LinearMap, add, compose, identity  # noqa: E402
from tvmconv.network.algebra.rounding import lost, relative_error, rounds_more  # noqa: E402

CHANNELS = 16
# What is measured differs by so much: it is of some thousand numbers.
_NOISE = 1.1
# Each a map and the normalization that is folded into it; the first one first.
Branch = list[tuple[LinearMap, LinearMap]]
PLAIN = identity(CHANNELS, 2)


def rounded(array: Array, dtype: str) -> Array:
    return array.astype(numpy_dtype(dtype)).astype(np.float64)


def draw(kind: str, dtype: str) -> list[Branch]:
    rng = np.random.default_rng(0)

    def convolution(taps: int, size: float = 1.0, outputs: int = CHANNELS, inputs: int = CHANNELS) -> LinearMap:
        """Return one whose outputs are `size` times as large as its inputs."""
        filter_ = rng.standard_normal((outputs, inputs, taps, taps)) * size / np.sqrt(inputs * taps * taps)
        pads = (taps // 2, taps // 2)
        return LinearMap(rounded(filter_, dtype), None, (1, 1), (1, 1), pads, pads)

    def normalization() -> LinearMap:
        return PLAIN.scaled(rng.uniform(0.7, 1.4, CHANNELS), rng.standard_normal(CHANNELS))

    value: Branch = []
    if kind == "filters":
        return [[(convolution(3), PLAIN)], [(convolution(1), PLAIN)]]
    if kind == "normalized":
        return [*([(convolution(taps), normalization())] for taps in (3, 1)), [(PLAIN, normalization())]]
    if kind == "chain":
        return [[(convolution(3), PLAIN), (convolution(1), PLAIN)]]
    if kind == "adapter":
        down, up = convolution(1, outputs=4), convolution(1, 0.1, inputs=4)
        return [[(convolution(1), PLAIN)], [(down, identity(4, 2)), (up, PLAIN)]]
    return [[(convolution(3, {"small": 0.01, "half": 0.4, "as large": 1, "large": 3}[kind]), PLAIN)], value]


def applied(map_: LinearMap, filter_: Array, data: Array) -> Array:
    given = torch.nn.functional.conv2d(
        torch.from_numpy(data), torch.from_numpy(filter_), padding=map_.begins, groups=map_.groups
    )
    made: Array = given.numpy()
    return made


def error_of(branches: list[Branch], data: Array, dtype: str) -> float:
    """Return the error of a sum of branches that round as a network does, but for the sum; biases are as they are."""
    total, exact = np.zeros_like(data), np.zeros_like(data)
    for branch in branches:
        value = right = data
        for number, (map_, scale) in enumerate(branch):
            filter_ = map_.scaled(scale.filter.reshape(-1)).filter
            right = applied(map_, filter_, right)
            value = applied(map_, filter_ if map_.is_diagonal else rounded(filter_, dtype), value)
            if len(branches) > 1 or number + 1 < len(branch):
                value = rounded(value, dtype)
        total, exact = total + value, exact + right
    return float(np.sqrt(np.mean((total - exact) ** 2)))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("kind", ["filters", "normalized", "chain", "adapter", "large", "as large", "half", "small"])
def test_the_rule_says_what_is_measured(kind: str, dtype: str) -> None:
    branches = draw(kind, dtype)
    parts = [[each for stage in reversed(branch) for each in reversed(stage)] for branch in branches]
    whole = [reduce(lambda outer, inner: compose(outer, inner) or pytest.fail(), [PLAIN, *each]) for each in parts]
    merged = add(whole)
    assert merged is not None
    data = rounded(np.random.default_rng(1).standard_normal((4, CHANNELS, 16, 16)), dtype)
    before = error_of(branches, data, dtype)
    after = error_of([[(replace(merged, bias=None), PLAIN)]], data, dtype)
    stays = kind in ("half", "small")
    assert rounds_more(merged, parts, dtype) == stays
    assert after > 1.25 / _NOISE * before if stays else after < 1.25 * _NOISE * before
    assert not rounds_more(merged, parts, "f32")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_the_mean_error_of_rounding(dtype: str) -> None:
    numbers = np.exp2(np.random.default_rng(0).uniform(-4, 4, 10**5))
    measured = np.mean((rounded(numbers, dtype) / numbers - 1) ** 2)
    assert measured == pytest.approx(relative_error(dtype), rel=0.02)


def test_numbers_that_a_type_has_not_are_lost() -> None:
    assert lost(np.array([1e5, 1.0]), "f16").tolist() == [np.inf, 0]
