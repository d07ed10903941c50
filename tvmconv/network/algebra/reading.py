"""Read Relax's linear operators by constants as maps, and write maps as operators.

Data has its channels second, as frontends leave it, or consists of rows with channels last, as a Linear's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from tvm import relax

from ...fills import numpy_dtype
from ...frontends.following import affine
from ..ir.constants import integers, static_shape
from ..ir.graph import Graph, along
from ..ir.operators import AVERAGE_POOLS, CONVOLUTIONS
from ..ir.problem_of import DTYPES, is_convolution
from .maps import Array, LinearMap, compose, identity

# Most operators that are followed back: more than any block has, and a bound on the work for long chains.
_MOST_LEVELS = 24
POOLS = [f"relax.nn.avg_pool{rank}d" for rank in AVERAGE_POOLS]


@dataclass(frozen=True)
class Level:
    """A variable as a map of a source; the map is composed of `parts`, last first, each with the shape of its input."""

    source: Any
    map: LinearMap
    parts: tuple[tuple[LinearMap, tuple[int, ...]], ...] = ()

    @property
    def maps(self) -> list[LinearMap]:
        """The parts' maps."""
        return [part for part, _ in self.parts]


_filters: WeakKeyDictionary[Graph, list[tuple[Any, Level]]] = WeakKeyDictionary()


def is_rows(variable: Any, graph: Graph) -> bool:
    """Return whether a variable is computed by a Linear's operators, with channels last."""
    call = graph.call(variable)
    return call is not None and (
        call.op.name == "relax.matmul" or (call.op.name == "relax.add" and variable.ty.ndim == 2)
    )


def pixels(shape: tuple[int, ...], rows: bool) -> tuple[int, ...]:
    """Return a shape with channels second; rows become pixels on one axis."""
    return (1, shape[-1], prod(shape[:-1])) if rows else shape


def levels(variable: Any, graph: Graph, rows: bool, most: int | None = None) -> list[Level]:
    """Return a variable as maps of earlier values, the farthest last; the first is the identity.

    Parameters
    ----------
    most
        How many operators may be other than per-channel products and sums; absent: any number.
    """
    shape = static_shape(variable.ty) or ()
    channels, rank = shape[-1 if rows else 1], 1 if rows else len(shape) - 2
    found, others = [Level(variable, identity(channels, rank))], 0
    while len(found) < _MOST_LEVELS and (
        len(graph.readers(found[-1].source)) == 1 or found[-1].source.same_as(variable)
    ):
        step = _step(found[-1].source, graph, rows)
        if step is None:
            break
        source, inner = step
        others += not inner.is_diagonal
        if most is not None and others > most:
            break
        made = compose(found[-1].map, inner)
        if made is None or source.ty.dtype != variable.ty.dtype:
            break
        part = (inner, pixels(static_shape(source.ty) or (), rows))
        found.append(Level(source, made, (*found[-1].parts, part)))
    return found


def filters(graph: Graph) -> list[tuple[Any, Level]]:
    """Return variables computed by one convolution with per-channel products and sums before and after it.

    Only the last variable of each such chain is returned. Cached, as several rules need them.
    """
    if graph not in _filters:
        _filters[graph] = list(_find_filters(graph))
    return _filters[graph]


def _find_filters(graph: Graph) -> Iterator[tuple[Any, Level]]:
    inside: set[Any] = set()
    for variable in reversed([*graph.values]):
        shape = static_shape(getattr(variable, "ty", None))
        if variable in inside or shape is None or 0 in shape or not 3 <= len(shape) <= 5:
            continue
        if str(variable.ty.dtype) not in DTYPES:
            continue
        reached = levels(variable, graph, rows=False, most=1)
        others = [each.passes for each in reached[-1].maps if not each.is_diagonal]
        if others in ([], [False]):  # intermediate variables have no other readers
            inside.update(level.source for level in reached[1:-1])
        if others == [False]:
            yield variable, reached[-1]


def _step(variable: Any, graph: Graph, rows: bool) -> tuple[Any, LinearMap] | None:
    """Return the source and the map of a variable's operator; None if it is no linear map by constants."""
    value = graph.values.get(variable)
    if isinstance(value, relax.TupleGetItem):
        return None if rows else _normalization(value, graph)
    call = graph.call(variable)
    if call is None or str(call.ty.dtype) not in DTYPES or static_shape(call.ty) is None:
        return None
    name = call.op.name
    if name == "relax.matmul" and rows:
        matrix = graph.array(call.args[1])
        if matrix is None or matrix.ndim != 2 or not isinstance(call.args[0], relax.Var):
            return None
        return call.args[0], LinearMap(matrix.T.astype(np.float64)[..., None], None, (1,), (1,), (0,), (0,))
    if is_convolution(call) and not rows:
        return convolution(call, graph)
    if name == "relax.strided_slice" and not rows:
        return _slice(call)
    if name in POOLS and not rows:
        return _pool(call)
    return _by_channel(call, graph, rows)


def convolution(call: relax.Call, graph: Graph) -> tuple[Any, LinearMap] | None:
    """Return the source and the map of a convolution with a constant filter; None for other convolutions, and transposed ones."""
    filter_, attrs, rank = graph.array(call.args[1]), call.attrs, call.ty.ndim - 2
    spatial = "DHW"[3 - rank :]
    if call.op.name.endswith("transpose") or filter_ is None or not isinstance(call.args[0], relax.Var):
        return None
    layouts = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)
    if layouts != (f"NC{spatial}", f"OI{spatial}", f"NC{spatial}") or static_shape(call.args[0].ty) is None:
        return None
    strides, dilations, pads = (tuple(map(int, each)) for each in (attrs.strides, attrs.dilation, attrs.padding))
    pads = pads * 2 if len(pads) == rank else pads
    if min(pads) < 0:
        return None
    return call.args[0], LinearMap(
        filter_.astype(np.float64), None, strides, dilations, pads[:rank], pads[rank:], int(attrs.groups)
    )


def _slice(call: relax.Call) -> tuple[Any, LinearMap] | None:
    """Return the source and the map of a strided slice; None if it crops pixels at an end, or channels."""
    given, made = static_shape(call.args[0].ty), static_shape(call.ty)
    if given is None or made is None or not 3 <= len(given) <= 5 or len(call.args) < 5:
        return None
    axes, starts, strides = (integers(call.args[at]) for at in (1, 2, 4))
    if axes is None or starts is None or strides is None:
        return None
    begins, steps = [0] * len(given), [1] * len(given)
    for axis, start, step in zip(axes, starts, strides, strict=True):
        begins[axis], steps[axis] = start, step
    whole = [
        0 <= begin < step and count == (size - begin - 1) // step + 1
        for begin, step, size, count in zip(begins, steps, given, made, strict=True)
    ]
    if not all(whole) or (given[:2] != made[:2]):
        return None
    ends = [count * step + begin - size for begin, step, size, count in zip(begins, steps, given, made, strict=True)]
    plain = identity(given[1], len(given) - 2)
    return call.args[0], replace(
        plain, strides=tuple(steps[2:]), begins=tuple(-each for each in begins[2:]), ends=tuple(ends[2:]), passes=True
    )


def _pool(call: relax.Call) -> tuple[Any, LinearMap] | None:
    """Return the source and the map of an average pool; None if it does not count its pads."""
    attrs, given = call.attrs, static_shape(call.args[0].ty)
    size, strides, dilations, pads = (
        tuple(map(int, each)) for each in (attrs.pool_size, attrs.strides, attrs.dilation, attrs.padding)
    )
    rank = len(size)
    pads = pads * 2 if len(pads) == rank else pads
    if given is None or not str(attrs.layout).startswith("NC") or bool(attrs.ceil_mode) or set(size) == {1}:
        return None
    if any(pads) and not bool(attrs.count_include_pad):
        return None
    filter_ = np.full((given[1], 1, *size), 1 / prod(size))
    return call.args[0], LinearMap(filter_, None, strides, dilations, pads[:rank], pads[rank:], given[1], passes=True)


def _normalization(item: relax.TupleGetItem, graph: Graph) -> tuple[Any, LinearMap] | None:
    found = graph.normalization(item)
    if found is None or len(graph.readers(item.tuple_value)) != 1:
        return None
    shape = static_shape(found.data.ty)
    if found.axis != 1 or shape is None or not 3 <= len(shape) <= 5:
        return None
    return found.data, identity(shape[1], len(shape) - 2).scaled(found.factor, found.shift)


def _by_channel(call: relax.Call, graph: Graph, rows: bool) -> tuple[Any, LinearMap] | None:
    constants = [graph.array(each) for each in call.args]
    if len(constants) != 2:
        return None
    first = constants[0] is None
    array, data = constants[1 if first else 0], call.args[0 if first else 1]
    shape = static_shape(call.ty) or ()
    if array is None or not isinstance(data, relax.Var) or static_shape(data.ty) != shape:
        return None
    if not (rows or 3 <= len(shape) <= 5):
        return None
    axis = len(shape) - 1 if rows else 1
    vector = along(array, len(shape), axis, shape[axis])
    found = None if vector is None else affine(call.op.name.removeprefix("relax."), lambda: vector, first)
    if found is None:
        return None
    factor = np.ones(shape[axis]) if found.factor is None else found.factor()
    shift = np.zeros(shape[axis]) if found.shift is None else found.shift()
    return data, identity(shape[axis], 1 if rows else len(shape) - 2).scaled(factor, shift)


def write_map(map_: LinearMap, source: Any, emit: Callable[[Any], Any], rows: bool) -> Any:
    """Return a map applied to a variable, as operators."""
    dtype, rank = source.ty.dtype, len(map_.strides)
    if rows:
        made = emit(relax.op.matmul(source, make_constant(map_.filter[..., 0].T, dtype)))
        return made if map_.bias is None else emit(relax.op.add(made, make_constant(map_.bias, dtype)))
    made = emit(
        CONVOLUTIONS[rank](
            source,
            make_constant(map_.filter, dtype),
            strides=list(map_.strides),
            padding=[*map_.begins, *map_.ends],
            dilation=list(map_.dilations),
            groups=map_.groups,
        )
    )
    return add_shift(made, map_.bias, emit)


def add_shift(made: Any, bias: Array | None, emit: Callable[[Any], Any]) -> Any:
    """Return a variable with a number added to each channel."""
    if bias is None:
        return made
    return emit(relax.op.add(made, make_constant(bias.reshape(1, -1, *[1] * (made.ty.ndim - 2)), made.ty.dtype)))


def make_constant(array: Array, dtype: Any) -> relax.Constant:
    """Return numbers as a constant of a type."""
    return relax.const(np.ascontiguousarray(array.astype(numpy_dtype(DTYPES[str(dtype)]))), str(dtype))
