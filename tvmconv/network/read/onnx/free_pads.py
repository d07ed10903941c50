"""ONNX's Pad of extents that calls give, by every mode, and crops by pads below 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx

from ...ir.constants import constant
from ...ir.free import dims_of, is_free, simplify
from .free import numbers_in, word_of


def pad(builder: relax.BlockBuilder, inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr | None:
    """Return a Pad of free extents, by what is inside or by a number; None: its extents are fixed, or calls give its pads.

    Pads of other modes are repeated where they are longer than the data, as NumPy's are.
    """
    data, dims = inputs[0], dims_of(inputs[0].ty)
    mode, (amounts, value, axes) = word_of(given, "mode", "constant"), [*inputs[1:], None, None, None][:3]
    numbers = given.get("pads", given.get("paddings")) if amounts is None else numbers_in(amounts)
    if dims is None or numbers is None or not is_free(data.ty) or not all(isinstance(each, int) for each in numbers):
        return None
    chosen = range(len(dims)) if axes is None else [axis % len(dims) for axis in numbers_in(axes) or ()]
    half = len(numbers) // 2
    pairs = dict(zip(chosen, zip(numbers[:half], numbers[half:], strict=True), strict=True))
    for axis, (begin, end) in pairs.items():
        if min(begin, end) < 0:
            sides = [max(-begin, 0)], [dims[axis] + min(end, 0)]
            data = builder.emit(relax.op.strided_slice(data, [axis], *sides, assume_inbound=True))
    dims = dims_of(data.ty) or ()
    pairs = {axis: (max(begin, 0), max(end, 0)) for axis, (begin, end) in pairs.items() if max(begin, end) > 0}
    if mode == "constant":
        number = given.get("value", 0.0) if value is None else constant(value)
        if number is None:
            raise ValueError("it pads a free extent by an amount that is known only at run time")
        width = [each for axis in range(len(dims)) for each in pairs.get(axis, (0, 0))]
        return relax.op.nn.pad(data, width, mode, float(number)) if pairs else data
    for axis, (begin, end) in pairs.items():
        places = _places(builder, mode, dims[axis], begin, end)
        data = builder.emit(relax.op.take(data, places, axis, mode="clip"))
    return data


def _places(builder: relax.BlockBuilder, mode: str, extent: Any, begin: int, end: int) -> relax.Expr:
    """Return which elements an axis is padded to; a gather takes those outside of it from its ends."""
    period = {"wrap": extent, "reflect": tirx.max(2 * (extent - 1), 1)}.get(mode)

    def place(at: Any) -> Any:
        inside = at - begin if period is None else tirx.floormod(at - begin, period)
        return tirx.min(inside, period - inside) if mode == "reflect" else inside

    size = simplify(extent + begin + end)
    return builder.emit_te(lambda: te.compute([size], place, "places"), primfunc_name_hint="counted")
