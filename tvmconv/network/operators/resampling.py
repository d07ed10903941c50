"""Resizes of a plan that are spelled as sums of gathers along an axis by fixed weights, as frontends do of cubic, antialiased, linear
ones of one or three dimensions, and of others that TVM lacks: calls of the C function of `windows.py`, all axes in one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ..ir.constants import static_shape
from ..ir.graph import Graph, along
from ..ir.mutator import Rebinding, each_function, tidied
from .gather import parts_of
from .separable import TYPES, Kind, Windows, made

_NARROW = "bfloat16"
_AXES = 3
# A gather, its weights and the variables that both are computed by.
_Term = tuple[relax.Call, Any, tuple[Any, ...]]


@dataclass(frozen=True)
class _Along:
    """Sums of weighted elements along an axis of data, and the variables that compute them."""

    data: Any
    axis: int
    windows: Windows
    variables: frozenset[Any]


def resampled(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module in which resizes of f32 or bf16 whose last axis is that of the data are calls of the C function."""
    return tidied(each_function(tidied(mod), _Resampling, with_bindings=True))


@mutator
class _Resampling(Rebinding):
    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod)
        self._found: dict[Any, list[_Along]] = {}
        graph, within = Graph(function), set[Any]()
        for each in reversed(graph.values):
            axes = [] if each in within else _axes_of(each, graph)
            if axes:
                self._found[each] = axes
                within |= {inner for along in axes for inner in along.variables}

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the call that computes what a resize gives."""
        found = self._found.get(binding.var)
        if found is None:
            return None
        axes = {each.axis: each.windows for each in found}
        data, shape = found[-1].data, static_shape(binding.var.ty) or ()
        kind = (
            Kind.GREATEST
            if all((each.factors == 1).all() and each.taps == 1 for each in axes.values())
            else Kind.WEIGHTED
        )
        every = [axes.get(axis, Windows.whole(shape[axis], kind)) for axis in range(min(axes), len(shape))]
        return made(self.builder_, self.visit_expr(data), shape, every, kind, "resize")


def _axes_of(variable: Any, graph: Graph) -> list[_Along]:
    """Return the sums along axes of which a variable is the last, the last axis among them, from it on; else none."""
    found: list[_Along] = []
    at, rank = variable, variable.ty.ndim if isinstance(variable.ty, relax.TensorType) else 0
    while along := _along(at, graph):
        if along.axis < rank - _AXES or any(each.axis == along.axis for each in found):
            break
        # What something else reads, too, is computed by itself.
        if found and not set(graph.readers(at)) <= found[-1].variables:
            break
        found.append(along)
        at = along.data
    # What lies side by side is copied as such.
    last = next((each.windows for each in found if each.axis == rank - 1), None)
    if last is None or (last.taps == 1 and parts_of(last.places[:, 0])):
        return []
    # Single elements of bf16 are gathered as they are, which the C function would convert: of 16x14x14x14, doubled, 42 us, not 158.
    single = all(each.windows.taps == 1 for each in found)
    return [] if single and str(variable.ty.dtype) == _NARROW else found


def _along(variable: Any, graph: Graph) -> _Along | None:
    """Return the sum of weighted gathers that a variable is; None: it is something else."""
    shape = static_shape(variable.ty) if isinstance(variable, relax.Var) else None
    if not shape or 0 in shape or str(variable.ty.dtype) not in TYPES:
        return None
    terms = _terms(variable, variable, graph)
    if not terms:
        return None
    takes, weights, variables = zip(*terms, strict=True)
    data, axis = takes[0].args[0], _axis(takes[0])
    given = static_shape(data.ty)
    if given is None or any(not each.args[0].same_as(data) or _axis(each) != axis for each in takes):
        return None
    if data.ty.dtype != variable.ty.dtype:
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
    return _Along(data, axis, windows, frozenset(each for part in variables for each in part))


def _terms(variable: Any, root: Any, graph: Graph) -> list[_Term]:
    """Return the gathers that a variable is the sum of, each with its weights and variables; else none.

    Nothing but the sum reads what they are made of.
    """
    call = graph.call(variable)
    if call is None or (not variable.same_as(root) and len(graph.readers(variable)) != 1):
        return []
    if _is_conversion(call) and str(root.ty.dtype) == _NARROW:
        # Of bf16, whose operators compute in f32 and round; this sum is rounded once.
        return _with(variable, _terms(call.args[0], root, graph))
    if call.op.name == "relax.add":
        parts = [_terms(each, root, graph) for each in call.args]
        return _with(variable, [each for part in parts for each in part]) if all(parts) else []
    if call.op.name == "relax.multiply":
        for taken, factor in (call.args, call.args[::-1]):
            weights = _fixed(factor, graph)
            terms = _terms(taken, root, graph) if weights is not None and isinstance(taken, relax.Var) else []
            if len(terms) == 1 and terms[0][1] is None:
                return _with(variable, [(terms[0][0], weights, terms[0][2])])
        return []
    return [(call, None, (variable,))] if _is_gather(call) else []


def _with(variable: Any, terms: list[_Term]) -> list[_Term]:
    """Return terms, of which a variable is computed, too."""
    return [(call, weights, (*variables, variable)) for call, weights, variables in terms]


def _fixed(expr: Any, graph: Graph) -> npt.NDArray[Any] | None:
    """Return the numbers of a constant, or of one that is converted."""
    call = graph.call(expr) if isinstance(expr, relax.Var) else None
    return graph.array(expr if call is None or not _is_conversion(call) else call.args[0])


def _is_conversion(call: relax.Call) -> bool:
    return call.op.name == "relax.astype" and {str(call.args[0].ty.dtype), str(call.ty.dtype)} <= set(TYPES)


def _is_gather(call: relax.Call) -> bool:
    """Whether a call takes elements along an axis and stays within the data."""
    return call.op.name == "relax.take" and call.attrs.axis is not None and str(call.attrs.mode) in ("clip", "fast")


def _axis(call: relax.Call) -> int:
    return int(call.attrs.axis) % int(call.args[0].ty.ndim)
