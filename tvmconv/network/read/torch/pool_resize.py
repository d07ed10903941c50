"""ATen's pools and resizes; adaptive pools with windows of several sizes are computed axis by axis.

TVM's resize (0.27) rounds coordinates that PyTorch truncates, and lacks ``nearest-exact`` and scales that are not quotients of sizes.
The elements and weights of an output are those by which PyTorch resizes the identity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from tvm import relax, sym, te, tirx

from ...ir.free import equal, is_one
from ...ir.operators import AVERAGE_POOLS, MAX_POOLS, Operators
from ...operators.elementwise import FLOATS
from ...operators.resize import TRUNCATE, truncated_places
from .arguments import Converter, Converters, Given

# PyTorch's operators for two dimensions only, by their kind of weights; antialiased ones (`aa`) are wider where sizes shrink.
_OF_PLANES = {
    "cubic": "upsample_bicubic2d",
    "linear_aa": "_upsample_bilinear2d_aa",
    "cubic_aa": "_upsample_bicubic2d_aa",
}
# Coordinates of the nearest elements, by mode.
_NEAREST = {"nearest": "asymmetric", "exact": "half_pixel"}
# Tolerance of weights, which are of the order of 1 and in f32.
_ZERO = 1e-7
_METHODS, _OUTSIDE = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _adaptive(rank: int, pools: Operators, reduce: Callable[..., Any], pair: bool) -> Converter:
    """Return the converter of an adaptive pool over the last axes: a pool if all windows have one size, else window by window."""

    def convert(given: Given) -> relax.Expr:
        data, shape = given["self"], given.dims("self")
        if pair and any(user.args[1] == 1 for user in given.node.users):
            raise ValueError("its indices are used, which networks do not compute")
        extents, wanted = shape[-rank:], _sizes_of(given["output_size"], rank)
        sizes = [extent if size is None else size for extent, size in zip(extents, wanted, strict=True)]
        if all(size == 1 for size in sizes):
            data = given.emit(reduce(data, list(range(len(shape) - rank, len(shape))), keepdims=True))
        elif len(shape) == rank + 2 and all(
            isinstance(extent, int) and size and not extent % size for extent, size in zip(extents, sizes, strict=True)
        ):
            window = [extent // size for extent, size in zip(extents, sizes, strict=True)]
            data = given.emit(pools[rank](data, window, window, layout=_LAYOUTS[rank]))
        else:
            for axis, size in enumerate(sizes, len(shape) - rank):
                data = _by_windows(given, data, axis, shape[axis], size, reduce)
        return relax.Tuple([data, data]) if pair else data

    return convert


def _by_windows(given: Given, data: Any, axis: int, extent: Any, size: Any, reduce: Callable[..., Any]) -> Any:
    if equal(size, extent):
        return data
    if not isinstance(size, int):
        raise ValueError(f"its number of windows, {size} of {extent}, is not fixed")
    parts = []
    for number in range(size):
        begin, end = number * extent // size, ((number + 1) * extent + size - 1) // size
        part = given.emit(relax.op.strided_slice(data, [axis], [begin], [end], assume_inbound=True))
        parts.append(given.emit(reduce(part, axis, keepdims=True)))
    return given.emit(relax.op.concat(parts, axis))


def _average(rank: int) -> Converter:
    """Return the converter of ``avg_pool*``, also with a divisor of its own, which TVM (0.27) ignores."""

    def convert(given: Given) -> relax.Expr:
        shape, taps, pads = (
            given.dims("self"),
            *(_sizes_of(given[name], rank) for name in ("kernel_size", "padding")),
        )
        strides, divisor = _sizes_of(given["stride"] or taps, rank), given.get("divisor_override")
        if divisor and "float" not in given.dtype:
            raise ValueError("it divides sums of integers by a number of its own")
        data = given["self"] if len(shape) == rank + 2 else given.emit(relax.op.expand_dims(given["self"], 0))
        ends, options = list(pads), {"ceil_mode": given["ceil_mode"], "count_include_pad": given["count_include_pad"]}
        if divisor:  # windows are whole, with zeros beyond the data
            sizes, shape = given.node.meta["val"].shape[-rank:], given.fixed_shape("self")
            whole = zip(sizes, shape[-rank:], taps, pads, strides, strict=True)
            ends = [max((size - 1) * step + tap - extent - pad, 0) for size, extent, tap, pad, step in whole]
            around = [0] * 4 + [each for pair in zip(pads, ends, strict=True) for each in pair]
            data, pads, ends, options = given.emit(relax.op.nn.pad(data, around)), [0] * rank, [0] * rank, {}
        pooled = given.emit(AVERAGE_POOLS[rank](data, taps, strides, [*pads, *ends], layout=_LAYOUTS[rank], **options))
        if divisor:
            pooled = given.emit(relax.op.multiply(pooled, relax.const(prod(taps) / divisor, given.dtype)))
        return pooled if len(shape) == rank + 2 else given.emit(relax.op.squeeze(pooled, [0]))

    return convert


def _maxima(rank: int) -> Converter:
    """Return the converter of a maximum pool that may also return each maximum's index in its plane."""

    def convert(given: Given) -> relax.Expr:
        data, shape = given["self"], given.dims("self")
        taps, pads, dilations = (_sizes_of(given[name], rank) for name in ("kernel_size", "padding", "dilation"))
        strides = _sizes_of(given["stride"] or taps, rank)
        whole = data if len(shape) == rank + 2 else given.emit(relax.op.expand_dims(data, 0))
        attributes = {"strides": strides, "padding": [*pads, *pads], "dilation": dilations}
        pool = MAX_POOLS[rank](whole, taps, ceil_mode=given["ceil_mode"], layout=_LAYOUTS[rank], **attributes)
        values = given.emit(pool)
        values = values if len(shape) == rank + 2 else given.emit(relax.op.squeeze(values, [0]))
        if not any(user.args[1] == 1 and user.users for user in given.node.users):
            return relax.Tuple([values, values])  # the second is unread
        outputs, shape = given.shape_of(values), given.fixed_shape("self")
        places: Any = np.zeros([1] * (2 * rank), np.int64)
        inside: Any = np.ones([1] * (2 * rank), bool)
        for axis, (tap, pad, step, gap) in enumerate(zip(taps, pads, strides, dilations, strict=True)):
            at = np.arange(outputs[axis - rank])[:, None] * step - pad + np.arange(tap) * gap
            extent, form = shape[axis - rank], [1] * (2 * rank)
            form[axis], form[axis + rank] = at.shape
            places = places * extent + at.clip(0, extent - 1).reshape(form)
            inside = inside & ((at >= 0) & (at < extent)).reshape(form)
        count, outer = prod(taps), list(shape[:-rank])
        flat = given.emit(relax.op.reshape(data, [*outer, prod(shape[-rank:])]))
        table = relax.const(places.reshape(-1, count), "int64")
        windows = given.emit(relax.op.take(flat, table, len(outer), mode="clip"))
        least = relax.const(float("-inf"), given.dtype)
        windows = given.emit(relax.op.where(relax.const(inside.reshape(-1, count), "bool"), windows, least))
        best = given.emit(relax.op.argmax(windows, -1))
        row = relax.const(np.arange(places.size // count) * count, "int64")
        found = given.emit(relax.op.take(relax.const(places.ravel(), "int64"), relax.op.add(best, row), 0, mode="clip"))
        return relax.Tuple([values, given.emit(relax.op.reshape(found, outputs))])

    return convert


def _sample(given: Given) -> relax.Expr:
    """Return ``grid_sampler_2d``, whose coordinates are on the last axis; TVM's operator expects them on the second."""
    planes = given.dims("input")[2:]
    if given["padding_mode"] == _OUTSIDE.index("reflection") and not all(
        isinstance(each, int) and each > 1 for each in planes
    ):
        raise ValueError(
            "TVM divides by the distance between the edges of planes, which is 0 for one pixel: reflected planes must have fixed"
            " extents above 1"
        )
    grid = given.emit(relax.op.permute_dims(given["grid"], [0, 3, 1, 2]))
    method, outside = (
        names[given[name]] for names, name in ((_METHODS, "interpolation_mode"), (_OUTSIDE, "padding_mode"))
    )
    return given.emit(
        relax.op.image.grid_sample(
            given["input"], grid, method=method, padding_mode=outside, align_corners=given["align_corners"]
        )
    )


def _sizes_of(given: Any, rank: int) -> list[Any]:
    """Return a size for each axis, from a list or one number."""
    sizes = list(given) if isinstance(given, (list, tuple)) else [given]
    return sizes if len(sizes) == rank else sizes * rank


def _resize(rank: int, mode: str, fast: str | None) -> Converter:
    """Return the converter of ``upsample_*``, by TVM's resize of the mode `fast` where that is the same."""

    def convert(given: Given) -> relax.Expr:
        name = "input" if "input" in given.nodes else "self"
        data, shape, sizes = given[name], given.dims(name), given.made_dims()[2:]
        if mode not in _NEAREST and not given.dtype.startswith(("float", "bfloat")):
            raise ValueError("PyTorch resizes integers axis by axis, and rounds in between")
        scales = given.get("scale_factors") or [given.get(f"scales_{axis}") for axis in "dhw"[-rank:]]
        corners = given.get("align_corners")
        ratios = [_ratio(*each) for each in zip(sizes, shape[2:], strict=True)]
        as_sizes = all(scale in (None, ratio) for scale, ratio in zip(scales, ratios, strict=True))
        # Nearest elements only for integer ratios, where rounding of coordinates does not matter.
        free = not all(isinstance(each, int) for each in (*shape, *sizes))
        if free and mode in _NEAREST and rank < 3:
            steps = [1 / scale if scale else 0.0 for scale in scales]
            return _resize_planes(given, data, sizes, steps, "nearest_neighbor", _NEAREST[mode], TRUNCATE)
        smooth = fast in ("linear", "cubic")
        alike = as_sizes or (free and smooth)
        ones = bool(corners) and any(map(is_one, sizes))
        whole = smooth or (fast == "nearest_neighbor" and all(ratio and ratio == int(ratio) for ratio in ratios))
        if fast and whole and alike and (rank == 2 or (free and rank == 1)) and not (ones and smooth):
            how = "align_corners" if corners else "half_pixel" if smooth else "asymmetric"
            factors = [0.0 if as_sizes else float(scale or 0) for scale in scales]
            return _resize_planes(given, data, sizes, factors, fast, how, "floor")
        shape = given.fixed_shape(name)
        rows = [
            _rows(rank, extent, size, scale, mode, corners)
            for extent, size, scale in zip(shape[2:], sizes, scales, strict=True)
        ]
        if mode in _NEAREST and rank < 3 and given.dtype in (*FLOATS, "bfloat16"):
            how, steps = _NEAREST[mode], [1 / scale if scale else 0.0 for scale in scales]
            if all(_are_truncated(each, how, step) for each, step in zip(rows, steps, strict=True)):
                return _resize_planes(given, data, sizes, steps, "nearest_neighbor", how, TRUNCATE)
        for axis, each in enumerate(rows, 2):
            data = _weigh(given, data, axis, each)
        return data

    return convert


def _are_truncated(rows: Any, how: str, step: float) -> bool:
    """Return whether PyTorch selects the same elements as our resize, unlike where a scale leaves the extent unchanged."""
    size, extent = rows.shape
    return bool((rows.argmax(1) == truncated_places(extent, size, how, step)).all())


def _resize_planes(
    given: Given, data: Any, sizes: Sequence[Any], factors: Sequence[float], method: str, how: str, rounding: str
) -> relax.Expr:
    """Return TVM's resize of the last one or two axes; factors of 0 mean the quotients of sizes."""
    planes = 2 - len(sizes)
    if planes:
        data = given.emit(relax.op.expand_dims(data, 2))
    made = relax.op.image.resize2d(
        data,
        relax.ShapeExpr([*[1] * planes, *sizes]),
        roi=[*[0.0] * planes, *factors, 0.0, 0.0],
        layout="NCHW",
        method=method,
        coordinate_transformation_mode=how,
        rounding_method=rounding,
        cubic_alpha=-0.75,
    )
    return given.emit(relax.op.squeeze(given.emit(made), [2]) if planes else made)


def _ratio(size: Any, extent: Any) -> float | None:
    """Return the factor by which an extent grows; None if it depends on the extent."""
    if isinstance(size, int) and isinstance(extent, int):
        return size / extent
    most = sym.Analyzer().simplify(tirx.floordiv(size, extent)) if not isinstance(extent, int) else None
    return int(most) if isinstance(most, (int, tirx.IntImm)) and equal(size, extent * int(most)) else None


def _rows(rank: int, extent: int, size: int, scale: float | None, mode: str, corners: Any) -> Any:
    """Return the weights of `extent` elements in each of the `size` that they are resized to."""
    identity = torch.eye(extent)[None]
    if mode in _OF_PLANES:  # PyTorch has these for two dimensions only
        made = getattr(torch.ops.aten, _OF_PLANES[mode])(
            identity[:, :, None], [1, size], bool(corners), None if scale is None else 1.0, scale
        )[0, :, 0]
    elif mode == "linear":
        made = torch.ops.aten.upsample_linear1d(identity, [size], bool(corners), scale)[0]
    else:  # from two dimensions on, an unchanged extent keeps its elements, whatever the scale
        name = "upsample_nearest" if mode == "nearest" else "_upsample_nearest_exact"
        ones = [1] * (rank - 1)
        planes, scales = identity.reshape(1, extent, *ones, extent), [None] * (rank - 1)
        made = getattr(torch.ops.aten, f"{name}{rank}d")(planes, [*ones, size], *scales, scale).reshape(extent, size)
    return made.numpy().T


def _weigh(given: Given, data: Any, axis: int, rows: Any) -> Any:
    """Return weighted sums of elements along an axis."""
    found = [np.flatnonzero(np.abs(row) > _ZERO) for row in rows]
    total = None
    for tap in range(max(map(len, found))):
        at = np.array([places[min(tap, len(places) - 1)] for places in found])
        weights = np.array(
            [row[place] if tap < len(places) else 0 for row, place, places in zip(rows, at, found, strict=True)]
        )
        part = given.emit(relax.op.take(data, relax.const(at, "int64"), axis, mode="clip"))
        if not (weights == 1).all():
            shape = [1] * data.ty.ndim
            shape[axis] = len(at)
            part = given.emit(
                relax.op.multiply(part, given.of_type(relax.const(weights.reshape(shape), "float32"), given.dtype))
            )
        total = part if total is None else given.emit(relax.op.add(total, part))
    return total


def _windows(given: Given) -> relax.Expr:
    """Return ``unfold.default``: all windows along an axis, with their elements along a new last axis."""
    (axis,), rank = given.axes("dimension"), given["self"].ty.ndim
    shape, size, step = given.dims("self"), given["size"], given["step"]
    if not isinstance(shape[axis], int):
        made, data = given.made_dims(), given["self"]

        def windows(tensor: te.Tensor) -> te.Tensor:
            def element(*at: Any) -> Any:
                return tensor(*at[:axis], at[axis] * step + at[rank], *at[axis + 1 : rank])

            return te.compute(made, element, "windows")

        return given.builder.emit_te(windows, data, primfunc_name_hint="windows")
    begins = np.arange(0, shape[axis] - size + 1, step)
    at = relax.const(begins[:, None] + np.arange(size), "int64")
    taken = given.emit(relax.op.take(given["self"], at, axis, mode="clip"))
    order: Sequence[int] = [each for each in range(rank + 1) if each != axis + 1]
    return given.emit(relax.op.permute_dims(taken, [*order, axis + 1]))


WINDOWS: Converters = {
    **{f"adaptive_max_pool{rank}d.default": _adaptive(rank, MAX_POOLS, relax.op.max, True) for rank in (1, 2, 3)},
    **{
        f"{prefix}adaptive_avg_pool{rank}d.default": _adaptive(rank, AVERAGE_POOLS, relax.op.mean, False)
        for rank in (1, 2, 3)
        for prefix in ("", "_")
    },
    **{f"avg_pool{rank}d.default": _average(rank) for rank in (2, 3)},
    **{f"max_pool{rank}d_with_indices.default": _maxima(rank) for rank in (2, 3)},
    "grid_sampler_2d.default": _sample,
    **{f"upsample_nearest{rank}d.vec": _resize(rank, "nearest", "nearest_neighbor") for rank in (1, 2, 3)},
    **{f"_upsample_nearest_exact{rank}d.vec": _resize(rank, "exact", None) for rank in (1, 2, 3)},
    "upsample_linear1d.vec": _resize(1, "linear", "linear"),
    "upsample_bilinear2d.vec": _resize(2, "linear", "linear"),
    "upsample_trilinear3d.vec": _resize(3, "linear", "linear"),
    "upsample_bicubic2d.vec": _resize(2, "cubic", "cubic"),
    **{f"{_OF_PLANES[mode]}.default": _resize(2, mode, None) for mode in ("linear_aa", "cubic_aa")},
    "unfold.default": _windows,
}
