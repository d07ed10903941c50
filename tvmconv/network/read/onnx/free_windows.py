"""Windows whose pads depend on extents that calls give: convolutions and pools that pad to a quotient (SAME), pools that round their size up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from tvm import relax, tirx

from ...ir.constants import static_shape
from ...ir.free import dims_of, product

_KINDS = ("Conv", "MaxPool")


def give_free_pads(emit: Callable[[Any], Any], kind: str, inputs: Any, given: dict[str, Any]) -> None:
    """Give a window of free extents its pads: as numbers where they are, else as a copy of its data with its edges.

    Parameters
    ----------
    emit
        Binds an expression.
    kind, inputs, given
        Of the node; inputs and attributes are changed.
    """
    auto, dims = _text(given.get("auto_pad", "NOTSET")), dims_of(inputs[0].ty) if inputs else None
    if kind not in _KINDS or not (auto.startswith("SAME") or given.get("ceil_mode")):
        return
    if dims is None:
        raise ValueError(f"{kind} pads data of extents that are not known")
    spatial = dims[2:]
    if all(isinstance(each, int) for each in spatial):
        return
    taps = given.get("kernel_shape") or (static_shape(inputs[1].ty) or ())[2:]
    strides, dilations = (given.get(name) or [1] * len(taps) for name in ("strides", "dilations"))
    pads = given.get("pads") or [0] * (2 * len(taps))
    edges = []
    for axis, (x, tap, stride, dilation) in enumerate(zip(spatial, taps, strides, dilations, strict=True)):
        span, before, after = dilation * (tap - 1) + 1, pads[axis], pads[axis + len(taps)]
        if auto.startswith("SAME"):
            total = _most(_up(x, stride) * stride - stride + span - x, 0) if stride > 1 else span - 1
            half = total // 2
            edges.append((half, total - half) if auto == "SAME_UPPER" else (total - half, half))
        else:
            steps = _up(x + before + after - span, stride)
            # A window that begins behind the data is none.
            last = _least(steps, _up(x + before, stride) - 1)
            edges.append((before, _most(last * stride + span - x - before, 0)))
    given |= {"auto_pad": b"NOTSET", "ceil_mode": 0, "pads": [0] * (2 * len(taps))}
    if all(isinstance(each, int) for pair in edges for each in pair):
        given["pads"] = [pair[0] for pair in edges] + [pair[1] for pair in edges]
        return
    most = [dilation * (tap - 1) + stride for tap, stride, dilation in zip(taps, strides, dilations, strict=True)]
    inputs[0] = _with_edges(emit, inputs[0], edges, most, -inf if kind == "MaxPool" else 0.0)


def _with_edges(
    emit: Callable[[Any], Any], data: relax.Expr, edges: Sequence[Any], most: Sequence[int], value: float
) -> relax.Expr:
    """Return data between edges of a value, each of less than `most`: a part of data with edges that are as wide."""
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


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
