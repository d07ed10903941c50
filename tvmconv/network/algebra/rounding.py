"""Estimate the error of rounding to 16 bits: of a joined filter beside that of the maps that it replaces.

Of data whose elements are independent and of size 1, a filter that is rounded by ``d`` has an error of ``sum(d ** 2)`` in an
output. An output of a filter ``w`` is of size ``sum(w ** 2)``, and has an error of ``c`` times that where it is rounded: ``c`` is
the mean square of a type's relative errors. Errors are squares throughout. A branch rounds its filter, batch normalization
folded in, what one map of a chain leaves for the next, and, if it is one of several, its output. A joined filter rounds itself alone. The sum is rounded in
either case, which counts for neither: errors of outputs are as good as random, but those of a filter are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np

from ...dtypes import numpy_dtype
from .maps import Array, LinearMap, of_constants

# The error may grow by a quarter: of squares.
MOST = 1.25**2
# Distance between a number of each type and the next, among numbers from 1 to 2.
_STEPS = {"f16": 2.0**-10, "bf16": 2.0**-7}


def relative_error(dtype: str) -> float:
    """Return the mean square of the relative errors of rounding to a type.

    It is ``step ** 2 / 12`` over the square of a mantissa ``m``, of density ``1 / (m log 2)``: together ``step ** 2 / (32 log 2)``.
    """
    return _STEPS[dtype] ** 2 / (32 * log(2))


def lost(filter_: Array, dtype: str) -> Array:
    """Return the squares of the errors of rounding a filter."""
    with np.errstate(over="ignore"):  # infinity is an error, too
        rounded = filter_.astype(numpy_dtype(dtype)).astype(np.float64)
    return (filter_ - rounded) ** 2


def rounds_more(merged: LinearMap, branches: Sequence[Sequence[LinearMap]], dtype: str) -> bool:
    """Return whether a map loses more by rounding than the branches that it sums, each a list of maps, last first."""
    if dtype == "f32":
        return False
    errors = [_of_branch(each, dtype) for each in branches if each]
    before = sum(error for error, _ in errors)
    if len(branches) > 1:
        before += relative_error(dtype) * sum(power for _, power in errors)
    return float(lost(merged.filter, dtype).sum()) > MOST * before


def _of_branch(parts: Sequence[LinearMap], dtype: str) -> tuple[float, float]:
    """Return the error of a branch's output before it is rounded, and its size, both summed over its channels."""
    stages = _stages(parts)
    if not stages:
        return 0.0, 0.0
    error, power = np.zeros(stages[0].inputs), np.ones(stages[0].inputs)
    for number, stage in enumerate(stages):
        if number:
            error = error + relative_error(dtype) * power
        squares = replace(stage, filter=stage.filter**2)
        error = of_constants(squares, error)
        if not (stage.is_diagonal or stage.passes):  # which is computed of numbers in f32
            error = error + of_constants(replace(stage, filter=lost(stage.filter, dtype)), power)
        power = of_constants(squares, power)
    return float(error.sum()), float(power.sum())


def _stages(parts: Sequence[LinearMap]) -> list[LinearMap]:
    """Return the stages of a map in order; products by channel are part of the filter before them."""
    stages: list[LinearMap] = []
    for part in (each for each in reversed(parts) if not each.is_slice):
        if stages and part.is_diagonal:
            stages[-1] = stages[-1].scaled(part.filter.reshape(-1))
        else:
            stages.append(part)
    return stages
