"""Resizes written as weighted sums of gathers along an axis, as calls of the C function of `separable.py`, one for all axes.

Frontends write cubic and antialiased resizes so, linear ones of one or three dimensions, and others that TVM lacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ..ir.constants import static_shape
from ..ir.graph import Graph, along
from ..ir.mutator import GraphMutator, each_function, tidy
from .gather import parts_of
from .separable import TYPES, WindowKind, Windows, call_windows

_NARROW = "bfloat16"
_AXES = 3
# More terms than any resize has; bounds the work on other long sums.
_MOST_TERMS = 1024
# A gather and its weights.
_Term = tuple[relax.Call, Any]
_Known = Mapping[Any, Sequence[_Term]]


@dataclass(frozen=True)
class _Along:
    """Weighted sums of elements along an axis of data, and the variables that compute them."""

    data: Any
    axis: int
    windows: Windows
    variables: frozenset[Any]


def call_resampling(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module with calls of the C function for resizes of f32 or bf16 that change the last axis."""
    return tidy(each_function(tidy(mod), _Resampling, with_bindings=True))


@mutator
class _Resampling(GraphMutator):
    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod, function)
        self._found: dict[Any, list[_Along]] = {}
        graph, within = self._graph, set[Any]()
        known: dict[Any, Sequence[_Term]] = {}
        for each in graph.values:
            known[each] = _terms(each, graph, known)
        for each in reversed(graph.values):
            axes = [] if each in within else _axes_of(each, graph, known)
            if axes:
                self._found[each] = axes
                within |= {inner for along in axes for inner in along.variables}

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the call that computes a resize."""
        found = self._found.get(binding.var)
        if found is None:
            return None
        axes = {each.axis: each.windows for each in found}
        data, shape = found[-1].data, static_shape(binding.var.ty) or ()
        kind = (
            WindowKind.GREATEST
            if all((each.factors == 1).all() and each.taps == 1 for each in axes.values())
            else WindowKind.WEIGHTED
        )
        every = [axes.get(axis, Windows.whole(shape[axis], kind)) for axis in range(min(axes), len(shape))]
        return call_windows(self.builder_, self.visit_expr(data), shape, every, kind, "resize")


def _axes_of(variable: Any, graph: Graph, known: _Known) -> list[_Along]:
    """Return the resizes along axes that compute a variable, from the last one computed, if the last axis is among them; else none."""
    found: list[_Along] = []
    at, rank = variable, variable.ty.ndim if isinstance(variable.ty, relax.TensorType) else 0
    while along := _along(at, graph, known):
        if along.axis < rank - _AXES or any(each.axis == along.axis for each in found):
            break
        # An intermediate value with another consumer is computed by itself.
        if found and not set(graph.readers(at)) <= found[-1].variables:
            break
        found.append(along)
        at = along.data
    # Gathers of contiguous elements are copied faster.
    last = next((each.windows for each in found if each.axis == rank - 1), None)
    if last is None or (last.taps == 1 and parts_of(last.places[:, 0])):
        return []
    # Gathers of single elements of bf16 need no conversion, unlike the C function: 16x14x14x14, doubled, takes 42 us instead of 158.
    single = all(each.windows.taps == 1 for each in found)
    return [] if single and str(variable.ty.dtype) == _NARROW else found


def _along(variable: Any, graph: Graph, known: _Known) -> _Along | None:
    """Return the weighted sum of gathers that a variable is bound to; None for anything else."""
    shape = static_shape(variable.ty) if isinstance(variable, relax.Var) else None
    if not shape or 0 in shape or str(variable.ty.dtype) not in TYPES:
        return None
    terms = known.get(variable, [])
    if not terms:
        return None
    takes, weights = zip(*terms, strict=True)
    data, axis = takes[0].args[0], _axis(takes[0])
    given = static_shape(data.ty)
    if given is None or data.ty.dtype != variable.ty.dtype:
        return None
    variables = _computing(variable, graph, known)
    # Operators on bf16 compute in f32 and round; their sum is rounded once. f32 values stay f32.
    if str(variable.ty.dtype) != _NARROW and any(_is_conversion(graph.values[each]) for each in variables):
        return None
    places = [graph.array(each.args[1]) for each in takes]
    if any(each is None or each.ndim != 1 for each in places):
        return None
    table = np.clip(np.stack([np.asarray(each) for each in places], 1), 0, given[axis] - 1).astype(np.int32)
    ones = np.ones(shape[axis])
    factors = [ones if each is None else along(each, len(shape), axis, shape[axis]) for each in weights]
    if any(each is None for each in factors):
        return None
    windows = Windows(given[axis], table, np.stack([np.asarray(each) for each in factors], 1).astype(np.float32))
    return _Along(data, axis, windows, variables)


def _computing(variable: Any, graph: Graph, known: _Known) -> frozenset[Any]:
    """Return a sum's variable and those that compute it, from the gathers on."""
    reached, waiting = {variable}, [variable]
    while waiting:
        call = graph.values[waiting.pop()]
        inner = [] if _is_gather(call) else [each for each in call.args if known.get(each)]
        reached.update(inner)
        waiting += inner
    return frozenset(reached)


def _terms(variable: Any, graph: Graph, known: _Known) -> Sequence[_Term]:
    """Return the gathers along one axis of one tensor whose sum a variable is, each with its weights; else none.

    Intermediate values have no other consumer. `known` has the terms of the variables before.
    """
    call = graph.call(variable)
    if call is None or _is_gather(call):
        return [] if call is None else [(call, None)]
    if call.op.name not in ("relax.add", "relax.multiply") and not _is_conversion(call):
        return []
    parts = [known.get(each, []) if len(graph.readers(each)) == 1 else [] for each in call.args]
    if call.op.name == "relax.multiply":
        for terms, factor in zip(parts, reversed(call.args), strict=True):
            weights = _numbers(factor, graph) if len(terms) == 1 and terms[0][1] is None else None
            if weights is not None:
                return [(terms[0][0], weights)]
        return []
    first, last = parts[0], parts[-1]
    if len(parts) == 1 or not first or not last:
        return first if len(parts) == 1 else []
    (one, _), (other, _) = first[0], last[0]
    if len(first) + len(last) > _MOST_TERMS or not one.args[0].same_as(other.args[0]) or _axis(one) != _axis(other):
        return []
    return [*first, *last]


def _numbers(expr: Any, graph: Graph) -> npt.NDArray[Any] | None:
    """Return the numbers of a constant, converted or not; None for others."""
    call = graph.call(expr) if isinstance(expr, relax.Var) else None
    return graph.array(expr if call is None or not _is_conversion(call) else call.args[0])


def _is_conversion(call: relax.Call) -> bool:
    return call.op.name == "relax.astype" and {str(call.args[0].ty.dtype), str(call.ty.dtype)} <= set(TYPES)


def _is_gather(call: relax.Call) -> bool:
    """Return whether a call takes elements along an axis and stays within the data."""
    return call.op.name == "relax.take" and call.attrs.axis is not None and str(call.attrs.mode) in ("clip", "fast")


def _axis(call: relax.Call) -> int:
    return int(call.attrs.axis) % int(call.args[0].ty.ndim)
