"""Bounds of integers of a graph: numbers that wrap around at the ends of their type are not taken for bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tvmconv.network.ir.bounds import bounds_of
from tvmconv.network.ir.graph import Graph

op = relax.op
INT32 = (-(2**31), 2**31 - 1)


def bounds(make: Callable[..., Any], dtype: str) -> tuple[Any, Any]:
    """Return the bounds of what `make` computes of a tensor."""
    builder, data = relax.BlockBuilder(), relax.Var("x", relax.TensorType((8,), dtype))
    with builder.function("main", [data]):
        with builder.dataflow():
            made = make(lambda call: builder.emit(call), data)
            output = builder.emit_output(made)
        builder.emit_func_output(output)
    return bounds_of(made, Graph(builder.finalize()["main"]).values.get)


def number(value: int, dtype: str) -> relax.Constant:
    """Return a constant."""
    return relax.const(np.array(value, dtype))


@pytest.mark.parametrize(
    ("make", "dtype", "expected"),
    [
        (lambda emit, x: emit(op.astype(x, "int64")), "uint8", (0, 255)),
        (lambda emit, x: emit(op.clip(x, -3, 200)), "int32", (-3, 200)),
        (lambda emit, x: emit(op.clip(x, 0, np.inf)), "int32", (0, INT32[1])),
        (lambda emit, x: emit(op.astype(emit(op.clip(x, 0, 100)), "int8")), "int64", (0, 100)),
        (lambda emit, x: emit(op.astype(emit(op.clip(x, 0, 200)), "int8")), "int64", (-128, 127)),
        (lambda emit, x: emit(op.subtract(emit(op.clip(x, 1, 5)), number(1, "uint8"))), "uint8", (0, 4)),
        (lambda emit, x: emit(op.subtract(emit(op.clip(x, 0, 5)), number(1, "uint8"))), "uint8", (0, 255)),
        (lambda emit, x: emit(op.add(emit(op.maximum(x, number(0, "int32"))), number(1, "int32"))), "int32", INT32),
        (lambda emit, x: emit(op.floor_mod(x, number(7, "int32"))), "int32", (0, 6)),
    ],
)
def test_bounds_are_those_of_the_type_where_numbers_may_wrap_around(
    make: Callable[..., Any], dtype: str, expected: tuple[int, int]
) -> None:
    assert bounds(make, dtype) == expected


def test_choices_of_indices_counted_from_the_end() -> None:
    def make(emit: Callable[..., Any], x: relax.Var) -> Any:
        index = emit(op.clip(x, -8, 7))
        counted, below = emit(op.add(index, number(8, "int32"))), emit(op.less(index, number(0, "int32")))
        return emit(op.where(below, counted, index))

    assert bounds(make, "int32") == (0, 7)
