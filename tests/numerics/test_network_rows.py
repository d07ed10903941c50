"""Rows whose elements no vector divides: computed together with their contiguous neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvmconv.accuracy import UNIT, rounding

pytest.importorskip("tvm")
import tvm
from tvm import relax

from tests.numerics.test_network import module
from tests.numerics.test_network_transposes import called
from tvmconv.network.lower import schedule_functions
from tvmconv.targets.target import Target

op = relax.op
SHAPE = (1, 6, 8, 21)


def added(builder: Any, a: Any, b: Any) -> Any:
    return builder.emit(op.multiply(builder.emit(op.add(a, b)), relax.const(2.0)))


def by_channel(builder: Any, a: Any, b: Any) -> Any:
    return builder.emit(op.multiply(a, relax.const(np.arange(21, dtype=np.float32))))


def by_row(builder: Any, a: Any, b: Any) -> Any:
    return builder.emit(op.multiply(a, relax.const(np.arange(6, dtype=np.float32).reshape(6, 1, 1))))


def from_further_on(builder: Any, a: Any, b: Any) -> Any:
    parts = [builder.emit(op.strided_slice(a, [2], [begin], [begin + 4])) for begin in (0, 3)]
    return builder.emit(op.subtract(*parts))


@pytest.mark.parametrize(
    ("make", "vectors", "right"),
    [
        (added, True, lambda a, b: (a + b) * 2),
        (by_row, True, lambda a, b: a * np.arange(6).reshape(6, 1, 1)),
        (by_channel, False, lambda a, b: a * np.arange(21)),
        (from_further_on, False, lambda a, b: a[:, :, :4] - a[:, :, 3:7]),
    ],
)
def test_rows_of_an_odd_number(make: Any, vectors: bool, right: Any, tmp_path: Path) -> None:
    arrays = [np.random.default_rng(seed).integers(-9, 10, SHAPE).astype(np.float32) for seed in (0, 1)]
    functions = schedule_functions(module(make, [SHAPE, SHAPE]), Target.parse("x86-64-v4"))
    text = "".join(str(each) for each in functions.functions.values() if isinstance(each, tvm.tirx.PrimFunc))
    assert ("T.vectorized" in text) == vectors
    (answer,) = called(make, arrays, "host", tmp_path)
    np.testing.assert_array_equal(answer, right(*arrays))


@pytest.mark.parametrize("extent", [16, 37, 200])
def test_logarithms_of_softmax(extent: int, tmp_path: Path) -> None:
    """Of rows that are some vectors, or not, of numbers whose powers are none, and of rows with what is no number."""
    rng = np.random.default_rng(0)
    data = (rng.standard_normal((3, 7, extent)) * 300).astype(np.float32)
    data[0, 1, 3], data[1, 2, 5], data[2, 3, 1] = -np.inf, np.nan, np.inf
    data[0, 0] = 5.0
    with np.errstate(all="ignore"):
        wide = data.astype(np.float64)
        below = wide - wide.max(-1, keepdims=True)
        right = below - np.log(np.exp(below).sum(-1, keepdims=True))
    (answer,) = called(lambda builder, x: builder.emit(relax.op.nn.log_softmax(x)), [data], "host", tmp_path)
    finite = np.isfinite(right)
    np.testing.assert_allclose(answer[finite], right[finite], rtol=rounding("float32"), atol=UNIT["float32"] * 4)
    assert not np.isfinite(answer[~np.isfinite(right)]).any()


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("extent", [17, 64, 700])
def test_scans_of_rows(extent: int, exclusive: bool, tmp_path: Path) -> None:
    """By blocks of 16, that divide a row or not, of whole numbers and of others; an infinity is in no sum before it."""
    rng = np.random.default_rng(0)
    whole = rng.integers(-9, 10, (2, 3, extent))
    data = whole.astype(np.float32)
    data[0, 1, 9] = np.inf

    def shifted(right: Any, neutral: int) -> Any:
        return np.concatenate([np.full_like(right[..., :1], neutral), right[..., :-1]], -1) if exclusive else right

    def total(builder: Any, x: Any) -> Any:
        return builder.emit(op.cumsum(x, axis=2, exclusive=exclusive))

    def product(builder: Any, x: Any) -> Any:
        return builder.emit(op.cumprod(x, axis=2, exclusive=exclusive))

    for array in (whole, data):
        (answer,) = called(total, [array], "host", tmp_path)
        np.testing.assert_array_equal(answer, shifted(array.cumsum(-1), 0))
    factors = rng.uniform(0.9, 1.1, data.shape).astype(np.float32)
    (answer,) = called(product, [factors], "host", tmp_path)
    right = shifted(factors.astype(np.float64).cumprod(-1), 1)
    np.testing.assert_allclose(answer, right, rtol=rounding("float32", summed=extent))
