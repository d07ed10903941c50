"""Products and sums that every CPU rounds alike: explicit multiply-adds, and separate operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import tirx

from tvmconv.lowering.common.fixed_rounding import round_alike
from tvmconv.lowering.common.step_arithmetic import fence, fma

Value = Callable[..., Any]


def written(value: Value, dtype: str) -> tuple[Any, Any]:
    """Return what becomes of a value of three numbers that are stored, and these numbers."""
    given = tirx.decl_buffer((3,), dtype, "given")
    numbers = [tirx.BufferLoad(given, [each]) for each in range(3)]
    store = tirx.BufferStore(tirx.decl_buffer((1,), dtype, "out"), value(*numbers), [0])
    return round_alike(store).value, numbers


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda a, b, c: a * b + c, fma),
        (lambda a, b, c: c + a * b, fma),
        (lambda a, b, c: a * b - c, lambda a, b, c: fma(a, b, -c)),
        (lambda a, b, c: c - a * b, lambda a, b, c: fma(-a, b, c)),
        (lambda a, b, c: a * b + b * c, lambda a, b, c: fma(b, c, fence(a * b))),
        (lambda a, b, c: a * b * c, lambda a, b, c: fence(fence(a * b) * c)),
        # What a step of an epilogue has rounded by itself stays that.
        (lambda a, b, c: fence(a * b) + c, lambda a, b, c: fence(fence(a * b)) + c),
        (lambda a, b, c: (a + b) / c, lambda a, b, c: (a + b) / c),
    ],
)
def test_products_that_are_added_are_multiply_adds(before: Value, after: Value, dtype: str) -> None:
    found, numbers = written(before, dtype)
    assert str(found) == str(after(*numbers))


def test_products_of_f16_are_rounded_to_f16_once() -> None:
    found, (a, b, c) = written(lambda a, b, c: a * b + c, "float16")
    product = fence(a.astype("float32") * b.astype("float32")).astype("float16")
    assert str(found) == str(product + c)


def test_integers_are_left() -> None:
    found, (a, b, c) = written(lambda a, b, c: a * b + c, "int32")
    assert str(found) == str(a * b + c)
