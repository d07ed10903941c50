"""Resizes of two dimensions, as tensor expressions with tables of the elements and weights of each output.

TVM (0.27) computes coordinates for each element of the output, and inlines preceding operators, such as a normalization, at each read:
12.6 of 40 ms of smp's FPN. Here preceding operators are computed once, and vectors are of channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, sym, te, tirx

from ..ir.constants import static_shape
from ..ir.free import dims_of, is_free
from ..schedule.stages import KEPT
from .elementwise import FLOATS, OUT_FUSABLE
from .separable import TYPES, WindowKind, Windows, call_windows

Array = npt.NDArray[Any]
# Distance by which TVM shifts coordinates before it rounds them down, or up.
_EPSILON = np.float32(1e-5)
_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "round": lambda x: np.round(x),
    "round_prefer_floor": lambda x: np.ceil(x - np.float32(0.5)),
    "round_prefer_ceil": lambda x: np.floor(x + np.float32(0.5)),
    "floor": lambda x: np.floor(x + _EPSILON),
    "ceil": lambda x: np.ceil(x - _EPSILON),
}
# PyTorch's rounding of nearest elements; the factor is then the distance of outputs.
TRUNCATE = "truncate"
# The C functions that compute tables; `_MODES` and `_ROUNDINGS` are in the order of their numbers there.
NEAREST, BEFORE, SHARE = "tvmconv_network_nearest", "tvmconv_network_before", "tvmconv_network_share"
CUBIC = "tvmconv_network_cubic"
# Taps of cubic resizes, from the element before an output's place.
_TAPS = (-1, 0, 1, 2)
_MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def resize2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a resize to the nearest elements, or by linear or cubic weights; TVM's for other coordinates and types.

    With channels first it is a call of the C function of `separable.py`.
    """
    attrs, shapes = call.attrs, [static_shape(each.ty) for each in (call.args[0], call)]
    method, mode, layout = str(attrs.method), str(attrs.coordinate_transformation_mode), str(attrs.layout)
    known, given, shape = mode in _MODES and layout in ("NCHW", "NHWC"), *shapes
    if known and (is_free(call.ty) or is_free(call.args[0].ty)):
        return _resized_freely(builder, call)
    if (
        not known
        or given is None
        or shape is None
        or {str(each.ty.dtype) for each in (call, call.args[0])} - set(FLOATS)
    ):
        return call.op.get_attr("FLegalize")(builder, call)
    first = layout.index("H")
    extents = list(zip(given[first : first + 2], shape[first : first + 2], strict=True))
    tables = []
    for (extent, size), scale in zip(extents, attrs.roi[:2], strict=False):
        if str(attrs.rounding_method) == TRUNCATE:
            tables.append(truncated_places(extent, size, mode, float(scale)))
            continue
        at = _coordinates(extent, size, mode)
        if method == "linear":
            whole = np.floor(at)
            tables += [_within(whole, extent), _within(whole + 1, extent), (at - whole).astype(np.float32)]
        elif method == "cubic":
            tables += _cubic(at, extent, float(attrs.cubic_alpha), bool(attrs.cubic_exclude))
        else:
            tables.append(_within(_nearest(at, extent, size, mode, str(attrs.rounding_method)), extent))

    if first == 2 and str(call.ty.dtype) in TYPES:
        resized = call_windows(builder, call.args[0], shape, _windows(given[first:], tables), _kind(tables), "resize2d")
        if resized is not None:
            return resized

    fixed = [relax.const(table, str(table.dtype)) for table in tables]
    return _by_tables(builder, call, fixed, shape, first, given[first] <= shape[first])


def _by_tables(
    builder: relax.BlockBuilder,
    call: relax.Call,
    tables: Sequence[Any],
    shape: Sequence[Any],
    first: int,
    enlarges: bool,
) -> relax.Expr:
    """Return the resize of axes from `first` on by its tables: indices; two of indices and a share; or indices, each before its weights."""

    def nearest(data: te.Tensor, rows: te.Tensor, columns: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return data(*at[:first], rows(at[first]), columns(at[first + 1]), *at[first + 2 :])

        return te.compute(shape, element, "resized")

    half = len(tables) // 2
    weigh = _interpolate if half == 3 else _sum

    def weighted(data: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        def across(*at: Any) -> Any:
            y, x = at[first : first + 2]
            return weigh(
                tables[half:], x, lambda column: data(*at[:first], y, column, *at[first + 2 :]).astype("float32")
            )

        def element(*at: Any) -> Any:
            made = weigh(tables[:half], at[first], lambda row: rows(*at[:first], row, *at[first + 1 :]))
            return made.astype(data.dtype)

        # If the output has as many rows, each input row is resized once, and an output row is a sum of whole rows.
        rows: Any = across
        if enlarges:
            resized = (*shape[:first], data.shape[first], *shape[first + 1 :])
            rows = te.compute(resized, across, "rows", attrs={KEPT: 1})
        return te.compute(shape, element, "resized")

    fusable = {"op_pattern": OUT_FUSABLE}
    function = weighted if half > 1 else nearest
    return builder.call_te(function, call.args[0], *tables, primfunc_name_hint="resize2d", primfunc_attrs=fusable)


def _resized_freely(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a resize of free extents, by tables of a C function (`lowering/native/operators/resizing.c`)."""
    attrs, given, shape = call.attrs, dims_of(call.args[0].ty) or (), dims_of(call.ty) or ()
    first, mode = str(attrs.layout).index("H"), str(attrs.coordinate_transformation_mode)
    factors = [
        float(each) for each in attrs.roi[:2]
    ]  # the scales, as nothing else uses roi; 0: the quotient of the sizes
    rounding = str(attrs.rounding_method) or ("round" if mode == "align_corners" else "floor")

    def table(axis: int, function: str, dtype: str, *numbers: int | float) -> Any:
        def made(extent: Any, size: Any) -> te.Tensor:
            last = [tirx.const(each, "float32" if isinstance(each, float) else "int64") for each in numbers]
            last = [tirx.const(_MODES.index(mode), "int64"), tirx.const(factors[axis - first], "float32"), *last]

            def body(_: Any, written: Any) -> Any:
                return tirx.Evaluate(tirx.call_extern("void", function, written[0].data, extent, size, *last))

            return te.extern([[size]], [], body, dtype=dtype, name="table")

        sizes = (tirx.const(each, "int64") if isinstance(each, int) else each for each in (given[axis], shape[axis]))
        return builder.emit(builder.call_te(made, *sizes, primfunc_name_hint="table"))

    tables = []
    for axis in (first, first + 1):
        if str(attrs.method) == "linear":
            tables += [table(axis, BEFORE, "int32", 0), table(axis, BEFORE, "int32", 1), table(axis, SHARE, "float32")]
        elif str(attrs.method) == "cubic":
            how = float(attrs.cubic_alpha), int(attrs.cubic_exclude)
            for tap in _TAPS:
                tables += [table(axis, BEFORE, "int32", tap), table(axis, CUBIC, "float32", tap, *how)]
        else:
            tables.append(table(axis, NEAREST, "int32", [*_ROUNDINGS, TRUNCATE].index(rounding)))
    enlarges = bool(sym.Analyzer().can_prove(given[first] <= shape[first]))
    return _by_tables(builder, call, tables, shape, first, enlarges)


def _kind(tables: Sequence[Array]) -> WindowKind:
    return WindowKind.WEIGHTED if len(tables) > 2 else WindowKind.GREATEST


def _windows(extents: Sequence[int], tables: Sequence[Array]) -> list[Windows]:
    """Return the windows of each axis by its tables: indices, or two of indices and the share of the second, or indices and weights."""
    found = []
    each = len(tables) // len(extents)
    for number, extent in enumerate(extents):
        own = tables[each * number : each * (number + 1)]
        if each == 3:
            own = [own[0], 1 - own[2], own[1], own[2]]
        weights = own[1::2] or [np.ones(len(own[0]), np.float32)]
        found.append(Windows(extent, np.stack(own[::2], 1), np.stack(weights, 1)))
    return found


def _interpolate(tables: Sequence[Any], at: Any, element: Callable[[Any], Any]) -> Any:
    before, after, share = (table(at) for table in tables)
    return element(before) * (1.0 - share) + element(after) * share


def _sum(tables: Sequence[Any], at: Any, element: Callable[[Any], Any]) -> Any:
    terms = [element(place(at)) * weight(at) for place, weight in zip(tables[::2], tables[1::2], strict=True)]
    return sum(terms[1:], terms[0])


def _coordinates(extent: int, size: int, mode: str) -> Array:
    """Return the outputs' coordinates among `extent` elements, in f32, as TVM computes them."""
    x, scale = np.arange(size, dtype=np.float32), np.float32(extent) / np.float32(size)
    if mode == "align_corners":
        return np.float32(extent - 1) / np.float32(max(size - 1, 1)) * x
    if mode == "asymmetric":
        return scale * x
    if mode == "pytorch_half_pixel" and size == 1:
        return np.zeros(1, np.float32)
    return (x + np.float32(0.5)) * scale - np.float32(0.5)


def _nearest(at: Array, extent: int, size: int, mode: str, rounding: str) -> Array:
    if mode == "asymmetric" and rounding in ("", "floor") and size % extent == 0:
        return np.arange(size) // (size // extent)
    return _ROUNDINGS[rounding or ("round" if mode == "align_corners" else "floor")](at)


def truncated_places(extent: int, size: int, mode: str, scale: float) -> Array:
    """Return the index among `extent` elements nearest to each output, by TRUNCATE; `scale` is the distance of outputs, 0: the quotient."""
    begin, step = 0.5 if mode == "half_pixel" else 0.0, scale or np.float32(extent) / np.float32(size)
    return _within(np.floor((np.arange(size, dtype=np.float32) + np.float32(begin)) * np.float32(step)), extent)


def _cubic(at: Array, extent: int, alpha: float, excludes: bool) -> list[Array]:
    """Return the indices of cubic convolution (Keys, 1981), each before its weights; `excludes`: elements outside have no weight."""
    whole = np.floor(at)
    weights = []
    for tap in _TAPS:
        x = np.abs(at - whole - tap)
        near = ((alpha + 2) * x - (alpha + 3)) * x * x + 1
        weight = np.where(x <= 1, near, ((alpha * x - 5 * alpha) * x + 8 * alpha) * x - 4 * alpha)
        is_outside = (whole + tap < 0) | (whole + tap >= extent)
        weights.append(np.where(excludes & is_outside, 0, weight))
    sums = sum(weights) if excludes else 1
    tables = [
        (_within(whole + tap, extent), (weight / sums).astype(np.float32))
        for tap, weight in zip(_TAPS, weights, strict=True)
    ]
    return [table for pair in tables for table in pair]


def _within(at: Array, extent: int) -> Array:
    return np.clip(at, 0, extent - 1).astype(np.int32)


OPERATORS = {"relax.image.resize2d": resize2d}
