"""Loops of copies, and their accesses to memory."""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm.ir import Range, TensorLoad
from tvm_ffi.structural import structural_equal

from .....algorithms.annotations import TRANSPOSE
from ....common.rewrites import find_all, refuse, settle, substitute
from ..padding import uses


def keep(loop: Any, condition: str, reason: str) -> Any:
    """Return a loop unchanged if its request is `condition`, which allows that; refuse it otherwise."""
    if loop.annotations[TRANSPOSE] != condition:
        refuse(loop, TRANSPOSE, reason)
    return settle(loop, TRANSPOSE)


def loop_over(variable: Any, extent: int, kind: Any, body: Any) -> Any:
    """Return a loop from 0."""
    return tirx.For(variable, 0, extent, kind, body)


def with_body(loop: Any, body: Any) -> Any:
    """Return a loop with another body."""
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=loop.annotations)


def loads_of(value: Any) -> list[Any]:
    """Return the loads of buffers in `value`."""
    return find_all(value, TensorLoad)


def only(loads: list[Any]) -> Any:
    """Return the load that all loads are equal to; None if there is none."""
    return loads[0] if loads and all(structural_equal(load, loads[0]) for load in loads) else None


def runs(access: Any, variable: Any, extent: int) -> bool:
    """Return whether elements are contiguous along the last index as `variable` grows up to `extent`.

    Axes with one element are ignored, unless the variable indexes padding around it.
    """
    shape = (access.source if isinstance(access, TensorLoad) else access.buffer).shape
    pairs = zip(access.indices, shape, strict=True)
    indices = [at for at, size in pairs if not isinstance(size, tirx.IntImm) or int(size) > 1 or uses(at, variable)]
    analyzer = sym.Analyzer()
    analyzer.bind(variable, Range(0, extent))
    firsts = [substitute(index, {variable: 0}) for index in indices]
    beyond = [*[0] * (len(firsts) - 1), variable]
    return all(
        analyzer.can_prove_equal(index, first + by) for index, first, by in zip(indices, firsts, beyond, strict=True)
    )


def runs_in_memory(access: Any, variable: Any, extent: int) -> bool:
    """Return whether elements of a dense array are contiguous, across several axes, as `variable` grows up to `extent`."""
    if len(access.source.strides):
        return False
    offset: Any = 0
    for index, elements in zip(access.indices, access.source.shape, strict=True):
        offset = offset * elements + index
    analyzer = sym.Analyzer()
    analyzer.bind(variable, Range(0, extent))
    return bool(analyzer.can_prove_equal(offset, substitute(offset, {variable: 0}) + variable))
