"""Proof that two extents of one symbol are equal, such as `2 * ((h + (4 - h % 4) % 4) // 2)` and `h + (4 - h % 4) % 4`.

Sums, multiples, and quotients and remainders by constants are periodic up to a slope: with the product `p` of all divisors as the period,
`f(n + p) = f(n) + c` for all n. Two such expressions that are equal over two periods have the same slope, and are equal everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

# Longest period that is tried: enough for two expressions that each divide by all of a network's strides.
_LONGEST = 1 << 16
_SUMS: Mapping[type, Callable[[Any, Any], Any]] = {tirx.Add: np.add, tirx.Sub: np.subtract, tirx.Mul: np.multiply}
_QUOTIENTS: Mapping[type, Callable[[Any, Any], Any]] = {tirx.FloorDiv: np.floor_divide, tirx.FloorMod: np.mod}


def equal_by_periods(one: Any, other: Any, symbol: tirx.Var) -> bool:
    """Return whether two expressions of a symbol are equal at all values from 1 on; False if that is not proven."""
    try:
        period = _period(one) * _period(other)
        if period > _LONGEST:
            return False
        numbers = np.arange(1, 2 * period + 1, dtype=np.int64)
        return bool(np.all(_evaluate(one, symbol, numbers) == _evaluate(other, symbol, numbers)))
    except ValueError:
        return False


def _period(given: Any) -> int:
    """Return the product of an expression's divisors.

    Raises
    ------
    ValueError
        If it has other operations, or a product or quotient without a constant.
    """
    if isinstance(given, (int, tirx.IntImm, tirx.Var)):
        return 1
    kind = type(given)
    if kind in _SUMS and (kind is not tirx.Mul or any(isinstance(each, tirx.IntImm) for each in (given.a, given.b))):
        return _period(given.a) * _period(given.b)
    if kind in _QUOTIENTS and isinstance(given.b, tirx.IntImm) and int(given.b):
        return _period(given.a) * abs(int(given.b))
    raise ValueError(f"{given} is not periodic")


def _evaluate(given: Any, symbol: tirx.Var, numbers: npt.NDArray[np.int64]) -> Any:
    if isinstance(given, (int, tirx.IntImm)):
        return int(given)
    if isinstance(given, tirx.Var):
        if not given.same_as(symbol):
            raise ValueError(f"{given} is another symbol")
        return numbers
    function = {**_SUMS, **_QUOTIENTS}[type(given)]
    return function(_evaluate(given.a, symbol, numbers), _evaluate(given.b, symbol, numbers))
