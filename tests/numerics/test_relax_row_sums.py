"""Sums along rows and what is computed before and after them, beside NumPy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
from tvm import relax

from tests.numerics.test_network import module
from tvmconv.relax.compiling import build
from tvmconv.runtime.network import load_network

op = relax.op
# Rows of whole vectors, of less than one, and that end with some elements; of several axes; many enough for threads.
CASES: list[tuple[tuple[int, ...], Any]] = [
    ((3, 5, 64), -1),
    ((2, 7), 1),
    ((2, 3, 49), -1),
    ((1, 9, 7, 31), (2, 3)),
    ((4, 5, 6, 30), (1, 3)),
    ((300, 277), -1),
    ((67,), 0),
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
