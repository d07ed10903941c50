"""Views: values whose elements are those of a tensor in another order, or some of them.

An axis of a view is a product of factors, outermost first, each with an extent and a stride. So every reshape that splits axes evenly is a
view, also one that merges axes which are not contiguous, such as batch and heads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import Any

from tvm import relax

from .constants import integers
from .graph import Graph, scalar
from .moves import RESHAPES, order_of
from .stand_ins import StandIn

Factor = tuple[int, int]
Axis = tuple[Factor, ...]
# Extent of an axis, and its strides in one or more tensors, by the tensors' names.
Row = tuple[int, Mapping[str, int]]
FLOATS = ("float32", "bfloat16")


@dataclass(frozen=True)
class View:
    """Elements of a tensor.

    Attributes
    ----------
    base
        Variable or constant with the elements.
    offset
        Offset of the first element.
    axes
        The factors of each axis; an axis with one element has none.
    factor
        Multiplier of all elements.
    """

    base: Any
    offset: int
    axes: tuple[Axis, ...]
    factor: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of its axes."""
        return tuple(prod(extent for extent, _ in axis) for axis in self.axes)


def whole(expr: Any, graph: Graph) -> View | None:
    """Return the view of a whole tensor; None: its shape is unknown, or it has no elements."""
    shape = graph.shape(expr)
    return None if shape is None or 0 in shape else View(expr, 0, dense(shape))


def dense(shape: Sequence[int]) -> tuple[Axis, ...]:
    """Return the axes of a tensor with contiguous elements."""
    return tuple(() if size == 1 else ((size, prod(shape[axis + 1 :])),) for axis, size in enumerate(shape))


def sources(expr: Any, graph: Graph, scaled: bool = False) -> list[View]:
    """Return a value as views of the values that it was moved from, the earliest first, itself last.

    With `scaled`, products with a number count as moves.
    """
    itself, value = whole(expr, graph), graph.values.get(expr) if isinstance(expr, relax.Var) else None
    if itself is None:
        return []
    moved: list[View | None] = []
    if isinstance(value, relax.TupleGetItem):
        call = graph.call(value.tuple_value, "relax.split")
        if call is not None:
            moved = [_part(call, value.index, view, graph) for view in sources(call.args[0], graph, scaled)]
    else:
        call = graph.call(expr) if isinstance(expr, relax.Var) else None
        if call is not None and call.op.name in {*RESHAPES, *_MOVED}:
            moved = [moved_by(call, view, graph) for view in sources(call.args[0], graph, scaled)]
        elif call is not None and scaled and call.op.name in ("relax.multiply", "relax.divide"):
            moved = [*_multiply(call, graph)]
    return [*(each for each in moved if each is not None), itself]


def _multiply(call: relax.Call, graph: Graph) -> Iterator[View]:
    """Yield the views of a product's or quotient's other operand, with the number as their factor."""
    for place in (0, 1) if call.op.name == "relax.multiply" else (0,):
        number = factor_of(call, place, graph)
        if number is not None and graph.shape(call) == graph.shape(call.args[place]):
            for view in sources(call.args[place], graph, scaled=True):
                if isfinite(factor := view.factor * number):
                    yield replace(view, factor=factor)


def skip_conversion(expr: Any, graph: Graph) -> Any:
    """Return the operand of conversions between f32 and bf16."""
    call = graph.call(expr, "relax.astype") if isinstance(expr, relax.Var) else None
    types = () if call is None else (str(call.ty.dtype), str(call.args[0].ty.dtype))
    return expr if call is None or not {*types} <= {*FLOATS} else skip_conversion(call.args[0], graph)


def fixed_number(expr: Any, graph: Graph) -> float | None:
    """Return the number of a constant with one element; None for other values."""
    return scalar(graph.array(skip_conversion(expr, graph)))


def factor_of(call: relax.Call, place: int, graph: Graph) -> float | None:
    """Return the constant by which a product or quotient multiplies one of its arguments; None: it is no constant."""
    number = fixed_number(call.args[1 - place], graph)
    if number is None or call.op.name == "relax.multiply":
        return number
    return 1 / number if number else None


def moved_by(call: relax.Call, view: View, graph: Graph) -> View | None:
    """Return an operator's result as a view, given that of its first argument; None if it is no view."""
    shape, name = graph.shape(call), call.op.name
    if shape is None or 0 in shape:
        return None
    if name in RESHAPES:
        axes = _regroup([factor for axis in view.axes for factor in axis], shape)
        return None if axes is None else replace(view, axes=axes)
    make = _MOVED.get(name)
    return None if make is None else make(call, view, graph)


def _permute(call: relax.Call, view: View, graph: Graph) -> View | None:
    return replace(view, axes=tuple(view.axes[axis] for axis in order_of(call) or ()))


def _convert(call: relax.Call, view: View, graph: Graph) -> View | None:
    # The consumer rounds for conversions between bf16 and f32.
    given = str(call.args[0].ty.dtype)
    return view if given in FLOATS and str(call.ty.dtype) in FLOATS else None


def _broadcast(call: relax.Call, view: View, graph: Graph) -> View | None:
    shape = graph.shape(call) or ()
    given = (((),) * (len(shape) - len(view.axes))) + view.axes
    axes = (axis or (((size, 0),) if size > 1 else ()) for axis, size in zip(given, shape, strict=True))
    return replace(view, axes=tuple(axes))


def _take(call: relax.Call, view: View, graph: Graph) -> View | None:
    """Return the view of a take with one index."""
    index = scalar(graph.array(call.args[1]))
    if index is None or call.args[1].ty.ndim or call.attrs.axis is None:
        return None
    axis = int(call.attrs.axis) % len(view.axes)
    size = view.shape[axis]
    at = int(index) + size * (index < 0 and str(call.attrs.mode) == "fast")
    if not 0 <= at < size or (isinstance(size, StandIn) and index not in (0, -1)):
        return None
    cut = _slice(view, axis, at, 1, 1)
    return None if cut is None else replace(cut, axes=(*cut.axes[:axis], *cut.axes[axis + 1 :]))


def _slice_axes(call: relax.Call, view: View, graph: Graph) -> View | None:
    shape = graph.shape(call) or ()
    given = [integers(arg) for arg in (*call.args[1:3], *call.args[4:])]
    if len(call.args) < 4 or any(each is None for each in given):
        return None
    axes, starts, *steps = (each or [] for each in given)
    made: View | None = view
    for number, (axis, start) in enumerate(zip(axes, starts, strict=True)):
        axis, step = axis % len(shape), steps[0][number] if steps else 1
        size = view.shape[axis]
        start = min(max(start + size * (start < 0), 0), size)
        if made is None or step < 1 or isinstance(start, StandIn):  # may be negative
            return None
        made = _slice(made, axis, start, shape[axis], step)
    return made


def _part(call: relax.Call, index: int, view: View, graph: Graph) -> View | None:
    """Return the view of a part of a split."""
    axis = int(call.attrs.axis) % len(view.axes)
    sizes = [(graph.shape(each) or ())[axis] for each in call.ty.fields]
    return _slice(view, axis, sum(sizes[:index]), sizes[index], 1)


def _slice(view: View, axis: int, start: int, count: int, step: int) -> View | None:
    """Return a view of every `step`-th element of an axis; None: inner factors are cut."""
    factors = view.axes[axis]
    if count == view.shape[axis]:
        return view
    (_, stride), rest = factors[0], factors[1:]
    inner = prod(size for size, _ in rest)
    if inner > 1 and (step != 1 or start % inner or count % inner):
        return None
    outer = count // inner
    made = (*([(outer, stride * step)] if outer > 1 else []), *rest)
    axes = (*view.axes[:axis], made, *view.axes[axis + 1 :])
    return replace(view, offset=view.offset + start // inner * stride, axes=axes)


def _repeat(call: relax.Call, view: View, graph: Graph) -> View | None:
    if call.attrs.axis is None:
        return None
    axis, times = int(call.attrs.axis) % len(view.axes), int(call.attrs.repeats)
    made = (*view.axes[axis], *([(times, 0)] if times > 1 else []))
    return replace(view, axes=(*view.axes[:axis], made, *view.axes[axis + 1 :]))


_MOVED = {
    "relax.permute_dims": _permute,
    "relax.astype": _convert,
    "relax.broadcast_to": _broadcast,
    "relax.repeat": _repeat,
    "relax.take": _take,
    "relax.strided_slice": _slice_axes,
}


def _regroup(factors: Sequence[Factor], shape: Sequence[int]) -> tuple[Axis, ...] | None:
    """Return factors regrouped as the axes of a shape; None: a factor cannot be split evenly."""
    left, axes = list(_merge(factors)), []
    for size in shape:
        axis: list[Factor] = []
        wanted = size
        while wanted > 1:
            if not left:
                return None
            extent, stride = left.pop(0)
            if wanted % extent and extent % wanted:
                return None
            if extent > wanted:
                left.insert(0, (extent // wanted, stride))
                extent, stride = wanted, stride * (extent // wanted)
            axis.append((extent, stride))
            wanted //= extent
        axes.append(_merge(axis))
    return tuple(axes)


def _merge(axis: Iterable[Factor]) -> Axis:
    """Return an axis with the fewest factors: contiguous ones merged."""
    rows = merge_rows((extent, {"": stride}) for extent, stride in axis)
    return tuple((extent, strides[""]) for extent, strides in rows)


def align(axes: Mapping[str, Axis]) -> list[Row] | None:
    """Return corresponding axes of several tensors as common rows; None: their factors cannot be split evenly.

    An axis without factors has one element, which is broadcast.
    """
    left = {name: list(axis) for name, axis in axes.items() if axis}
    rows: list[Row] = []
    while any(left.values()):
        if not all(left.values()):
            return None
        size = min(factors[0][0] for factors in left.values())
        strides = dict.fromkeys(axes, 0)
        for name, factors in left.items():
            extent, stride = factors.pop(0)
            if extent % size:
                return None
            if extent > size:
                factors.insert(0, (size_left := extent // size, stride))
                stride *= size_left
            strides[name] = stride
        rows.append((size, strides))
    return rows


def merge_rows(rows: Iterable[Row]) -> list[Row]:
    """Return rows, outermost first, with neighbours merged where they are contiguous in all tensors."""
    made: list[Row] = []
    for extent, strides in rows:
        names = {*strides, *(made[-1][1] if made else ())}
        if made and all(made[-1][1].get(name, 0) == extent * strides.get(name, 0) for name in names):
            made[-1] = (made[-1][0] * extent, strides)
        else:
            made.append((extent, strides))
    return made


def refine(rows: Iterable[Row], hub: str, cuts: Iterable[int]) -> list[Row] | None:
    """Return rows split at the strides of `hub` in `cuts`; None: they cannot be split evenly."""
    made: list[Row] = []
    for extent, strides in rows:
        step = strides[hub]
        inside = sorted({cut for cut in cuts if step < cut < step * extent}, reverse=True)
        above = step * extent
        for cut in (*inside, step):
            if above % cut or cut % step:
                return None
            times = cut // step
            made.append((above // cut, {name: stride * times for name, stride in strides.items()}))
            above = cut
    return made


def joined_rows(relations: Sequence[Sequence[Row]], hub: str) -> list[Row] | None:
    """Return the rows of several relations, all of which have strides of the tensor `hub`, joined as one relation of all tensors.

    Tensors without a stride for a row are broadcast along it.
    """
    cuts = {cut for rows in relations for extent, strides in rows for cut in (strides[hub], strides[hub] * extent)}
    found: dict[int, tuple[int, dict[str, int]]] = {}
    for rows in relations:
        cut = refine(rows, hub, cuts)
        if cut is None:
            return None
        for extent, strides in cut:
            _, known = found.setdefault(strides[hub], (extent, {}))
            known.update(strides)
    return [found[stride] for stride in sorted(found, reverse=True)]
