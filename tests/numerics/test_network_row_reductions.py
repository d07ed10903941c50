"""Sums, maxima and minima along rows, and what is computed before and after them, beside NumPy's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near import assert_near

pytest.importorskip("tvm")
from tvm import relax

from tests.numerics.test_network import module
from tvmconv.network.compile import build
from tvmconv.network.lower import schedule_functions
from tvmconv.network.options import check_target
from tvmconv.runtime.networks.network import load_network

op = relax.op
# Rows of whole vectors, of less than one, and that end with some elements; of several axes, which lie together or do not; many
# enough for threads; few of many elements, which are cut into chunks: of whole vectors, and of the first axis, evenly or not.
CASES: list[tuple[tuple[int, ...], Any]] = [
    ((3, 5, 64), -1),
    ((2, 7), 1),
    ((2, 3, 49), -1),
    ((1, 9, 7, 31), (2, 3)),
    ((4, 5, 6, 30), (1, 3)),
    ((300, 277), -1),
    ((67,), 0),
    ((3, 70, 7, 7), (2, 3)),
    ((2, 70001), -1),
    ((140, 20, 31), None),
    ((3, 131, 9, 19), (1, 3)),
    ((1, 96, 28, 28), (1, 2, 3)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_along_rows(dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 10, shape).astype(dtype) for shape, _ in CASES]

    def make(builder: Any, *data: Any) -> Any:
        outputs = []
        for each, (_, axes) in zip(data, CASES, strict=True):
            summed = builder.emit(op.sum(builder.emit(op.multiply(each, each)), axes, keepdims=True))
            outputs += [builder.emit(op.add(summed, relax.const(1, dtype))), builder.emit(op.sum(each, axes))]
        first = builder.emit(op.add(data[0], data[0]))  # which is an output, too
        return builder.emit(relax.Tuple([*outputs, first, builder.emit(op.sum(first, -1))]))

    build(module(make, [each.shape for each in arrays], dtype), tmp_path / "network.so")
    answers = iter(load_network(tmp_path / "network.so")(**{f"x{at}": each for at, each in enumerate(arrays)}).values())
    for array, (_, axes) in zip(arrays, CASES, strict=True):
        np.testing.assert_array_equal(next(answers), (array * array).sum(axes, keepdims=True) + 1)
        np.testing.assert_array_equal(next(answers), array.sum(axes))
    np.testing.assert_array_equal(next(answers), arrays[0] * 2)
    np.testing.assert_array_equal(next(answers), arrays[0].sum(-1) * 2)


@pytest.mark.parametrize("shape", [(4, 50), (2, 5, 7), (70003,), (67, 40, 41)], ids=str)
def test_extremes_along_rows(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Of each row, and of all numbers, with one that is none."""
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    with_nan = data.copy()
    with_nan.flat[-3] = np.nan
    named = {"max": np.max, "min": np.min}

    def make(builder: Any, *given: Any) -> Any:
        axes = (-1, None)
        made = [getattr(op, name)(each, axis) for name in named for each in given for axis in axes]
        return builder.emit(relax.Tuple([builder.emit(each) for each in [*made, op.argmax(given[0], -1)]]))

    build(module(make, [shape, shape], "float32"), tmp_path / "network.so")
    *answers, index = load_network(tmp_path / "network.so")(x0=data, x1=with_nan).values()
    expected = [take(each, axis=axis) for take in named.values() for each in (data, with_nan) for axis in (-1, None)]
    for answer, right in zip(answers, expected, strict=True):
        np.testing.assert_array_equal(answer, right)
    np.testing.assert_array_equal(index, data.argmax(-1))


@pytest.mark.parametrize("extent", [32, 37])
@pytest.mark.parametrize("name", ["sum", "max", "softmax", "layer_norm"])
def test_rows_come_together_by_vectors(name: str, extent: int) -> None:
    """LLVM brought the 16 parts of a row together by 20 shuffles: half the time of a normalization of 16 channels."""
    one = relax.const(np.ones(extent, np.float32))
    ways = {
        "sum": lambda x: op.sum(x, -1),
        "max": lambda x: op.max(x, -1),
        "softmax": op.nn.softmax,
        "layer_norm": lambda x: op.nn.layer_norm(x, one, one, -1),
    }
    mod = module(lambda builder, x: builder.emit(ways[name](x)), [(64, extent)])
    lanes = re.findall(
        r"in T\.vectorized\((?:T\.int64\()?(\d+)", schedule_functions(mod, check_target("host")).script()
    )
    assert {"16", "8", "4"} <= set(lanes), lanes


def test_normalizations_of_rows_that_are_no_whole_vectors(tmp_path: Path) -> None:
    """Of all that may be left of a row, and less than a vector: the sum of 257 numbers was one chain, eight times as long."""
    rng = np.random.default_rng(3)
    extents = [7, 17, 19, 23, 28, 31, 257]
    arrays = [(rng.standard_normal((3, extent)) + 10).astype(np.float32) for extent in extents]
    ones = [relax.const(np.ones(extent, np.float32)) for extent in extents]

    def make(builder: Any, *given: Any) -> Any:
        pairs = list(zip(given, ones, strict=True))
        rows = [op.nn.layer_norm(each, one, one, -1, scale=False, center=False) for each, one in pairs]
        return builder.emit(relax.Tuple([*map(builder.emit, [*rows, *(op.nn.rms_norm(*pair, -1) for pair in pairs)])]))

    build(module(make, [each.shape for each in arrays], "float32"), tmp_path / "network.so")
    answers = iter(load_network(tmp_path / "network.so")(**{f"x{at}": each for at, each in enumerate(arrays)}).values())
    exact = [each.astype(np.float64) for each in arrays]
    for rows in [*(each - each.mean(-1, keepdims=True) for each in exact), *exact]:
        right = rows / np.sqrt((rows * rows).mean(-1, keepdims=True) + 1e-5)
        assert_near(next(answers), right, summed=rows.shape[1], magnitude=10.0, layers=2)  # the mean


def test_normalizations_of_few_groups(tmp_path: Path) -> None:
    """Group by group and over several axes, channels first: 96 times the work, when each channel's was computed anew."""
    rng = np.random.default_rng(2)
    data = (rng.standard_normal((1, 48, 40, 52)) + 100).astype(np.float32)
    one, zero = np.ones(48, np.float32), np.zeros(48, np.float32)

    def make(builder: Any, x: Any) -> Any:
        scale, shift = relax.const(one), relax.const(zero)
        groups = [op.nn.group_norm(x, scale, shift, number, 1, [2, 3]) for number in (1, 6, 48)]
        deviation = builder.emit(op.variance(x, [1, 2, 3], keepdims=True))
        return builder.emit(relax.Tuple([*map(builder.emit, groups), deviation]))

    build(module(make, [data.shape], "float32"), tmp_path / "network.so")
    *answers, variance = load_network(tmp_path / "network.so")(x0=data).values()
    exact = data.astype(np.float64)
    for groups, answer in zip((1, 6, 48), answers, strict=True):
        rows = exact.reshape(groups, -1)
        right = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
        assert_near(answer, right.reshape(data.shape), summed=rows.shape[1], magnitude=100.0)  # the mean
    assert_near(variance.reshape(()), exact.var(), summed=exact.size, layers=2)
