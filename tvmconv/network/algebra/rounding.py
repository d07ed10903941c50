"""Estimate the error of rounding to 16 bits, of a joined filter and of the maps that it replaces.

For independent data of mean square 1, rounding errors ``d`` of a filter cause a squared error of ``sum(d ** 2)`` in an output. An output of
a filter ``w`` has the mean square ``sum(w ** 2)``; rounding it adds an error of ``c`` times that, where ``c`` is the mean square of a type's
relative errors. Errors are squares throughout. A branch rounds its filter, with batch normalization folded in, the intermediate results of
a chain, and, if it is one of several, its output. A joined filter is rounded itself, nothing else. The final sum is rounded in both cases,
and not counted: errors of outputs are practically random, those of a filter are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np

from ...dtypes import numpy_dtype
from .maps import Array, LinearMap, of_constants

# Allowed growth of the squared error: a quarter of the error.
MOST = 1.25**2
# Distance of neighbouring numbers of each type between 1 and 2.
_STEPS = {"f16": 2.0**-10, "bf16": 2.0**-7}


def relative_error(dtype: str) -> float:
    """Return the mean square of the relative errors of rounding to a type.

    It is ``step ** 2 / 12`` over the square of a mantissa ``m``, of density ``1 / (m log 2)``: together ``step ** 2 / (32 log 2)``.
    """
    return _STEPS[dtype] ** 2 / (32 * log(2))


def lost(filter_: Array, dtype: str) -> Array:
    """Return the squares of the errors of rounding a filter."""
    with np.errstate(over="ignore"):  # overflow is an infinite error
        rounded = filter_.astype(numpy_dtype(dtype)).astype(np.float64)
    return (filter_ - rounded) ** 2


def rounds_more(merged: LinearMap, branches: Sequence[Sequence[LinearMap]], dtype: str) -> bool:
    """Return whether a map has larger rounding errors than the branches that it joins, each a list of maps, last first."""
    if dtype == "f32":
        return False
    errors = [_of_branch(each, dtype) for each in branches if each]
    before = sum(error for error, _ in errors)
    if len(branches) > 1:
        before += relative_error(dtype) * sum(power for _, power in errors)
    return float(lost(merged.filter, dtype).sum()) > MOST * before


def _of_branch(parts: Sequence[LinearMap], dtype: str) -> tuple[float, float]:
    """Return the squared error of a branch's unrounded output, and the output's mean square, both summed over channels."""
    stages = _stages(parts)
    if not stages:
        return 0.0, 0.0
    error, power = np.zeros(stages[0].inputs), np.ones(stages[0].inputs)
    for number, stage in enumerate(stages):
        if number:
            error = error + relative_error(dtype) * power
        squares = replace(stage, filter=stage.filter**2)
        error = of_constants(squares, error)
        if not (stage.is_diagonal or stage.passes):  # these compute in f32
            error = error + of_constants(replace(stage, filter=lost(stage.filter, dtype)), power)
        power = of_constants(squares, power)
    return float(error.sum()), float(power.sum())


def _stages(parts: Sequence[LinearMap]) -> list[LinearMap]:
    """Return the stages of a chain in order, with per-channel products folded into the filter before them."""
    stages: list[LinearMap] = []
    for part in (each for each in reversed(parts) if not each.is_slice):
        if stages and part.is_diagonal:
            stages[-1] = stages[-1].scaled(part.filter.reshape(-1))
        else:
            stages.append(part)
    return stages
