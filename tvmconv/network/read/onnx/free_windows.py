"""Windows whose pads depend on free extents: convolutions and pools with SAME pads, and pools that round their size up.

An average that does not count pads is one with zeros as pads, divided by the same average of ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from typing import Any

from tvm import relax, tirx

from ...ir.constants import static_shape
from ...ir.free import dims_of, product
from ...ir.operators import AVERAGE_POOLS
from ...operators.max_pool import may_begin_beyond
from ..folding import FoldedAxis, fold
from .free import numbers_in, word_of

_KINDS = ("Conv", "MaxPool")


def give_free_pads(emit: Callable[[Any], Any], kind: str, inputs: Any, given: dict[str, Any]) -> None:
    """Give a window of free extents explicit pads: attributes where they are fixed, else padded data.

    Parameters
    ----------
    emit
        Binds an expression.
    kind, inputs, given
        The node's operator, inputs and attributes; the latter two are changed.
    """
    if kind not in _KINDS:
        return
    found = _edges(inputs, given)
    if found is None:
        return
    edges, most = found
    given |= {"auto_pad": b"NOTSET", "ceil_mode": 0, "pads": [0] * (2 * len(edges))}
    if all(isinstance(each, int) for pair in edges for each in pair):
        given["pads"] = [pair[0] for pair in edges] + [pair[1] for pair in edges]
    else:
        inputs[0] = _with_edges(emit, inputs[0], edges, most, -inf if kind == "MaxPool" else 0.0)


def average(emit: Callable[[Any], Any], inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr | None:
    """Return an AveragePool whose pads depend on free extents; None for others."""
    data, taps = inputs[0], given["kernel_shape"]
    found, rank = _edges(inputs, given), len(taps)
    if found is None:
        return None
    edges, most = found
    dims, dtype = dims_of(data.ty) or (), str(data.ty.dtype)

    def pooled(tensor: relax.Expr, around: Sequence[Any]) -> relax.Expr:
        wide = _with_edges(emit, tensor, around, most, 0.0)
        strides, dilations = (given.get(name) or [1] * rank for name in ("strides", "dilations"))
        return emit(AVERAGE_POOLS[rank](wide, taps, strides, dilation=dilations))

    mean, ones = pooled(data, edges), edges
    spatial = list(dims[2:])
    if given.get("count_include_pad"):
        if _is_same(given):
            return mean
        pads = given.get("pads") or [0] * (2 * rank)
        ends = list(zip(pads[:rank], pads[rank:], strict=True))
        spatial = [size + begin + end for size, (begin, end) in zip(spatial, ends, strict=True)]
        ones = [(0, edge - end) for (_, edge), (_, end) in zip(edges, ends, strict=True)]
    inside = emit(relax.op.full(relax.ShapeExpr([1, 1, *spatial]), relax.const(1, dtype), dtype))
    return relax.op.divide(mean, pooled(inside, ones))


def add_windows(builder: relax.BlockBuilder, inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr:
    """Return a Col2Im of an image of free extents with two axes.

    Raises
    ------
    ValueError
        If the extents of its windows are not fixed, or it has other axes.
    """
    data, image, block = inputs[0], *map(numbers_in, inputs[1:])
    dims = dims_of(data.ty)
    if dims is None or image is None or block is None or len(image) != 2:
        raise ValueError("with free extents it must have two axes, and windows of fixed extents")
    pads = given.get("pads") or [0] * 4
    dilations, strides = (given.get(name) or [1, 1] for name in ("dilations", "strides"))
    axes = [FoldedAxis(*each) for each in zip(block, dilations, pads[:2], pads[2:], strides, strict=True)]
    dtype, channels = str(data.ty.dtype), dims[1] // prod(block)
    if dtype != "float32":
        data = builder.emit(relax.op.astype(data, "float32"))
    made = fold(builder, data, [dims[0], channels, *image], axes)
    return made if dtype == "float32" else builder.emit(relax.op.astype(made, dtype))


def _edges(inputs: Sequence[Any], given: Mapping[str, Any]) -> tuple[list[tuple[Any, Any]], list[int]] | None:
    """Return how far a node's windows reach beyond its data, and bounds of that; None if its pads are explicit, or its extents fixed."""
    auto, dims = word_of(given, "auto_pad", "NOTSET"), dims_of(inputs[0].ty) if inputs else None
    if not (_is_same(given) or given.get("ceil_mode")):
        return None
    if dims is None:
        raise ValueError("it pads data of unknown extents")
    spatial = list(dims[2:])
    if all(isinstance(each, int) for each in spatial):
        return None
    taps = given.get("kernel_shape") or (static_shape(inputs[1].ty) or ())[2:]
    strides, dilations = (given.get(name) or [1] * len(taps) for name in ("strides", "dilations"))
    pads = given.get("pads") or [0] * (2 * len(taps))
    spans = [dilation * (tap - 1) + 1 for tap, dilation in zip(taps, dilations, strict=True)]
    counts_pads = given.get("count_include_pad") and any(pads)
    if not _is_same(given) and not counts_pads and not may_begin_beyond(spans, strides, pads[len(taps) :]):
        return None  # our pools round up by themselves
    edges: list[tuple[Any, Any]] = []
    for axis, (x, span, stride) in enumerate(zip(spatial, spans, strides, strict=True)):
        before, after = pads[axis], pads[axis + len(taps)]
        if _is_same(given):
            total = _most(_up(x, stride) * stride - stride + span - x, 0) if stride > 1 else span - 1
            half = total // 2
            edges.append((half, total - half) if auto == "SAME_UPPER" else (total - half, half))
        else:
            steps = _up(x + before + after - span, stride)
            # A window that begins behind the data is dropped.
            last = _least(steps, _up(x + before, stride) - 1)
            edges.append((before, _most(last * stride + span - x - before, 0)))
    return edges, [span - 1 + stride for span, stride in zip(spans, strides, strict=True)]


def _is_same(given: Mapping[str, Any]) -> bool:
    return word_of(given, "auto_pad", "NOTSET").startswith("SAME")


def _with_edges(
    emit: Callable[[Any], Any], data: relax.Expr, edges: Sequence[Any], most: Sequence[int], value: float
) -> relax.Expr:
    """Return data padded with a value by `edges`, each less than `most`: a slice of the data padded by `most`."""
    widths = [0, 0, 0, 0] + [width for each in most for width in (each, each)]
    wide, axes = emit(relax.op.nn.pad(data, widths, "constant", value)), list(range(2, 2 + len(edges)))
    sizes = (dims_of(data.ty) or ())[2:]
    begins = [product([width - begin]) for width, (begin, _) in zip(most, edges, strict=True)]
    ends = [product([width + size + end]) for width, size, (_, end) in zip(most, sizes, edges, strict=True)]
    part = emit(relax.op.strided_slice(wide, axes, begins, ends, assume_inbound=True))
    made = [product([begin + size + end]) for size, (begin, end) in zip(sizes, edges, strict=True)]
    return emit(relax.op.reshape(part, [*(dims_of(data.ty) or ())[:2], *made]))


def _up(size: Any, step: int) -> Any:
    return (size + step - 1) // step


def _least(one: Any, other: Any) -> Any:
    return min(one, other) if isinstance(one, int) else tirx.min(one, other)


def _most(one: Any, other: int) -> Any:
    return max(one, other) if isinstance(one, int) else tirx.max(one, other)
