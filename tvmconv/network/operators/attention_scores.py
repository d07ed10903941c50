"""Scores of an attention, and their softmax ("shares"), as frontends write them: operators on a product of queries and keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
from tvm import relax

from ..ir.graph import Graph
from ..ir.moves import RESHAPES
from ..ir.views import (
    FLOATS,
    Factor,
    Row,
    View,
    align,
    dense,
    factor_of,
    fixed_number,
    moved_by,
    skip_conversion,
    sources,
)

# Types of masks, as the C function numbers them.
TYPES = {"float32": 0, "bfloat16": 1, "bool": 2}
ADDED, KEPT_WHERE, KEPT_WHERE_NOT = 1, 2, 3
MASKS = 2
MATMUL = "relax.matmul"
MOVES = {*RESHAPES, "relax.permute_dims", "relax.astype"}
# Names of arrays with strides in rows: the scores, in the layout of the first product, and another array.
SCORES, BESIDE = "scores", "beside"


@dataclass(frozen=True)
class Mask:
    """Mask that is added to scores, or selects scores and fills the others with `fill`. `rows` are strides beside the scores'."""

    kind: int
    view: View
    rows: list[Row]
    fill: float = 0.0


@dataclass(frozen=True)
class Scores:
    """Scores, or shares, as a view of the first product.

    Attributes
    ----------
    product
        The call of the first product.
    view
        The strides of its elements; the base is unused.
    factor
        A number that multiplies all scores.
    scale
        A factor for each index of the batch, and its strides.
    masks
        Masks in order of application.
    keys
        Of shares: the axis along which they sum to 1.
    empty_is_zero
        Whether a row of scores that are all minus infinity has shares of 0.
    """

    product: relax.Call
    view: View
    factor: float = 1.0
    scale: tuple[View, list[Row]] | None = None
    masks: tuple[Mask, ...] = ()
    keys: Factor = (1, 0)
    empty_is_zero: bool = False


def _scores(expr: Any, graph: Graph) -> Scores | None:
    """Return scores as a view of a product of two tensors, with the scales and masks applied to it; None for anything else."""
    call = graph.call(expr) if isinstance(expr, relax.Var) else None
    shape = None if call is None else graph.shape(call)
    if call is None or shape is None or 0 in shape:
        return None
    name = call.op.name
    if name == MATMUL:
        plain = str(call.ty.dtype) in FLOATS and all(graph.shape(arg) and arg.ty.ndim > 1 for arg in call.args)
        return Scores(call, View(None, 0, dense(shape))) if plain else None
    if name in MOVES:
        before = _scores(call.args[0], graph)
        view = None if before is None else moved_by(call, before.view, graph)
        return None if before is None or view is None else replace(before, view=view)
    if name in ("relax.multiply", "relax.divide"):
        return _read_scale(call, graph)
    if name in ("relax.add", "relax.subtract"):
        return _read_addition(call, graph)
    return _read_choice(call, graph) if name == "relax.where" else None


def shares_of(expr: Any, graph: Graph) -> Scores | None:
    """Return the shares of a softmax with one consumer; None for anything else."""
    call = graph.call(expr) if isinstance(expr, relax.Var) else None
    if call is None or len(graph.readers(expr)) != 1:
        return None
    name = call.op.name
    if name == "relax.nn.softmax":
        scores = _scores(call.args[0], graph)
        axis = () if scores is None else scores.view.axes[int(call.attrs.axis) % call.ty.ndim]
        if scores is None or len(axis) > 1:
            return None
        # With one key all shares are 1, and the axis of the keys is unknown.
        return replace(scores, keys=axis[0]) if axis else None
    if name in MOVES:
        before = shares_of(call.args[0], graph)
        view = None if before is None else moved_by(call, before.view, graph)
        return None if before is None or view is None else replace(before, view=view)
    if name != "relax.where" or fixed_number(call.args[1], graph) != 0:
        return None
    shares = shares_of(call.args[2], graph)
    masked = graph.call(call.args[0], "relax.equal")
    greatest = None if masked is None else graph.call(masked.args[0], "relax.max")
    softmax = graph.call(skip_conversion(call.args[2], graph), "relax.nn.softmax")
    if shares is None or masked is None or greatest is None or softmax is None:
        return None
    axes = [int(axis) % softmax.ty.ndim for axis in greatest.attrs.axis or ()]
    of_these = skip_conversion(greatest.args[0], graph).same_as(skip_conversion(softmax.args[0], graph))
    along = axes == [int(softmax.attrs.axis) % softmax.ty.ndim] and bool(greatest.attrs.keepdims)
    if fixed_number(masked.args[1], graph) != -np.inf or not of_these or not along:
        return None
    return replace(shares, empty_is_zero=True)


def _read_scale(call: relax.Call, graph: Graph) -> Scores | None:
    """Return scores multiplied by a number, or by one for each index of the batch."""
    for place in (0, 1) if call.op.name == "relax.multiply" else (0,):
        before, by = _scores(call.args[place], graph), call.args[1 - place]
        if before is None or before.masks or graph.shape(call) != graph.shape(call.args[place]):
            continue
        number = factor_of(call, place, graph)
        if number is not None:
            factor = before.factor * number
            return replace(before, factor=factor) if isfinite(factor) else None
        beside = _beside(by, before.view, graph) if call.op.name == "relax.multiply" else None
        if beside is not None and before.scale is None:
            return replace(before, scale=beside)
    return None


def _read_addition(call: relax.Call, graph: Graph) -> Scores | None:
    """Return scores to which a mask is added."""
    for place in (0, 1):
        before, mask = _scores(call.args[place], graph), call.args[1 - place]
        if before is None or len(before.masks) == MASKS or graph.shape(call) != graph.shape(call.args[place]):
            continue
        if call.op.name == "relax.subtract":
            array = graph.array(skip_conversion(mask, graph))
            if place or array is None:
                continue
            mask = relax.const(-array.astype(np.float32), "float32")
        beside = _beside(mask, before.view, graph)
        if beside is not None:
            return replace(before, masks=(*before.masks, Mask(ADDED, *beside)))
    return None


def _read_choice(call: relax.Call, graph: Graph) -> Scores | None:
    """Return scores selected by a mask, with a fixed number for the others."""
    for place, kind in ((1, KEPT_WHERE), (2, KEPT_WHERE_NOT)):
        before, fill = _scores(call.args[place], graph), fixed_number(call.args[3 - place], graph)
        if before is None or fill is None or len(before.masks) == MASKS:
            continue
        beside = _beside(call.args[0], before.view, graph)
        if graph.shape(call) == graph.shape(call.args[place]) and beside is not None:
            return replace(before, masks=(*before.masks, Mask(kind, *beside, fill)))
    return None


def _beside(expr: Any, scores: View, graph: Graph) -> tuple[View, list[Row]] | None:
    """Return a tensor that is broadcast to scores as a view, and its strides beside the scores'."""
    for view in sources(expr, graph):
        if str(view.base.ty.dtype) not in TYPES:
            continue
        axes = ((),) * (len(scores.axes) - len(view.axes)) + view.axes
        rows: list[Row] | None = []
        for axis, given in zip(scores.axes, axes, strict=True):
            more = align({SCORES: axis, BESIDE: given})
            rows = None if rows is None or more is None else [*rows, *more]
        if rows is not None:
            return view, rows
    return None
