"""ONNX's Pad with free extents or pads: all modes, and crops by negative pads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx

from ...ir.constants import constant
from ...ir.free import dims_of, simplify
from .free import numbers_in, word_of


def pad(builder: relax.BlockBuilder, inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr | None:
    """Return a Pad with free extents or pads; None if all are fixed.

    Reflected and circular pads that are longer than the data repeat, as NumPy's do.

    Raises
    ------
    ValueError
        If the padding number is not fixed.
    """
    data, dims = inputs[0], dims_of(inputs[0].ty)
    mode, (amounts, value, axes) = word_of(given, "mode", "constant"), [*inputs[1:], None, None, None][:3]
    numbers = given.get("pads", given.get("paddings")) if amounts is None else numbers_in(amounts)
    if dims is None or numbers is None or all(isinstance(each, int) for each in (*dims, *numbers)):
        return None
    chosen = range(len(dims)) if axes is None else [axis % len(dims) for axis in numbers_in(axes) or ()]
    half = len(numbers) // 2
    pairs = dict(zip(chosen, zip(numbers[:half], numbers[half:], strict=True), strict=True))
    number = given.get("value", 0.0) if value is None else constant(value)
    if number is None:
        raise ValueError("its padding number is not fixed")
    known = {axis: pair for axis, pair in pairs.items() if all(isinstance(each, int) for each in pair)}
    for axis, (begin, end) in known.items():
        if min(begin, end) < 0:
            sides = [max(-begin, 0)], [dims[axis] + min(end, 0)]
            data = builder.emit(relax.op.strided_slice(data, [axis], *sides, assume_inbound=True))
    pairs |= {axis: (max(begin, 0), max(end, 0)) for axis, (begin, end) in known.items()}
    if mode == "constant":
        width = [each for axis in range(len(dims)) for each in (pairs[axis] if axis in known else (0, 0))]
        data = builder.emit(relax.op.nn.pad(data, width, mode, float(number))) if any(width) else data
        pairs = {axis: pair for axis, pair in pairs.items() if axis not in known}
    for axis, (begin, end) in pairs.items():
        if isinstance(begin, int) and isinstance(end, int) and begin == end == 0:
            continue
        extent = (dims_of(data.ty) or ())[axis]
        size = simplify(extent + begin + end)
        padded = builder.emit(relax.op.take(data, _places(builder, mode, extent, size, begin), axis, mode="clip"))
        if mode == "constant":
            inside = _find_inside(builder, extent, [size, *[1] * (len(dims) - 1 - axis)], begin)
            padded = builder.emit(relax.op.where(inside, padded, relax.const(float(number), str(data.ty.dtype))))
        data = padded
    return data


def _places(builder: relax.BlockBuilder, mode: str, extent: Any, size: Any, begin: Any) -> relax.Expr:
    """Return the indices of a padded axis's elements; a gather clamps those outside to the ends."""

    def compute(extent: Any, begin: Any) -> te.Tensor:
        period = {"wrap": extent, "reflect": tirx.max(2 * (extent - 1), 1)}.get(mode)

        def place(at: Any) -> Any:
            inside = at - begin if period is None else tirx.floormod(at - begin, period)
            return tirx.min(inside, period - inside) if mode == "reflect" else inside

        return te.compute([size], place, "places")

    return _emit(builder, compute, extent, begin)


def _find_inside(builder: relax.BlockBuilder, extent: Any, shape: Sequence[Any], begin: Any) -> relax.Expr:
    """Return a mask of the elements of a padded axis that are data."""

    def compute(extent: Any, begin: Any) -> te.Tensor:
        return te.compute(shape, lambda at, *_: tirx.all(at >= begin, at - begin < extent), "inside")

    return _emit(builder, compute, extent, begin)


def _emit(builder: relax.BlockBuilder, compute: Callable[[Any, Any], te.Tensor], *numbers: Any) -> relax.Expr:
    """Return a tensor computed from numbers, as arguments of the function, as its shape may lack their symbols."""
    zero = tirx.const(0, "int64")
    given = [zero + each for each in numbers]
    return builder.emit(builder.call_te(compute, *given, primfunc_name_hint="counted"))
