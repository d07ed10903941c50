"""Products of two tensors that are both data, as in attention, in register tiles, and convolutions that no kernel computes.

TVM's product is a loop over rows, columns and the sum that keeps its sums in memory. With free extents a product is a call of a C
function (`tvmconv/lowering/native/operators/product.c`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import relax, te, tirx

from ...targets.target import CpuTarget
from ..ir.constants import static_shape
from ..ir.free import dims_of, equal, is_free, is_one, product
from ..schedule.rules import TILES
from .elementwise import OUT_FUSABLE, Legalize, with_half_in_f32

FUNCTION = "tvmconv_network_product"
# The most rows, and the columns, of a register tile: 12 vectors of sums in the 16 registers of AVX2.
_TILES = ((6, 16),)
# Tiles of 12 or 16 of AVX-512's 32 registers; 24 are no faster.
_WIDE_TILES = ((12, 16), (8, 32))
# A tile as wide as all columns has no axis of tiles, and LLVM keeps its sums in memory.
# The most columns that wider tiles may compute, padding included, relative to the narrowest.
_BEYOND = 1.1
# Convolutions that no kernel computes, such as those by a filter that is data.
_CONVOLUTIONS = [f"relax.nn.conv{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_transpose")]


def operators_for(target: CpuTarget) -> dict[str, Legalize]:
    """Return the legalizations of products, in tiles for a target's registers, and of convolutions."""
    tiles = _WIDE_TILES if target.vector_registers == 32 else _TILES
    found: dict[str, Legalize] = {"relax.matmul": partial(_matmul, tiles), **dict.fromkeys(_CONVOLUTIONS, _convolve)}
    return {name: with_half_in_f32(legalize) for name, legalize in found.items()}


def _convolve(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return TVM's convolution."""
    return call.op.get_attr("FLegalize")(builder, call)


def _matmul(known: tuple[tuple[int, int], ...], builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a product in tiles; TVM's for other types than f32, for vectors, and where tiles would be mostly empty."""
    if any(is_free(each.ty) for each in (*call.args, call)) and min(each.ty.ndim for each in call.args) > 1:
        return _multiply_freely(builder, call)
    shapes = [static_shape(each.ty) for each in (*call.args, call)]
    types = {str(each.ty.dtype) for each in (*call.args, call)}
    if types != {"float32"} or any(shape is None or len(shape) < 2 for shape in shapes):
        return call.op.get_attr("FLegalize")(builder, call)
    *batches, rows, columns = shapes[2] or ()
    depth = (shapes[0] or ())[-1]
    if rows < 2 or columns < known[0][1] // 2 or depth < 2:
        return call.op.get_attr("FLegalize")(builder, call)
    most, width = next(
        each
        for each in reversed(known)
        if each is known[0] or (each[1] < columns and _up(columns, each[1]) <= _up(columns, known[0][1]) * _BEYOND)
    )
    height = -(-rows // -(-rows // most))  # tiles of about the same height

    def tiled(left: te.Tensor, right: te.Tensor) -> te.Tensor:
        if columns % width:
            right = _pad(right, depth, columns, width)
        k = te.reduce_axis((0, depth), "k")

        def element(*at: Any) -> Any:
            *batch, row, step, lane = at
            column = step * width + lane
            # Rows beyond the last repeat the last one, and are dropped.
            of_left = left(*_batch(left, batch), tirx.min(row, rows - 1), k)
            return te.sum(of_left * right(*_batch(right, batch), k, column), axis=k)

        # With two axes for columns, schedules do not split off a tile's last ones.
        whole = (*batches, _up(rows, height), -(-columns // width), width)
        tiles = te.compute(whole, element, "tiles", attrs={TILES: height})
        return te.compute(
            (*batches, rows, columns), lambda *at: tiles(*at[:-1], at[-1] // width, at[-1] % width), "product"
        )

    fusable = {"op_pattern": OUT_FUSABLE}
    return builder.call_te(tiled, *call.args, primfunc_name_hint="matmul", primfunc_attrs=fusable)


def _multiply_freely(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a product by the C function, whose operands are f32 and have batches of one size, or none; TVM's for integers."""
    dtype, made = str(call.ty.dtype), dims_of(call.ty)
    if dtype != "float32" or made is None:
        return call.op.get_attr("FLegalize")(builder, call)
    operands = list(call.args)
    *_, rows, terms = dims_of(operands[0].ty) or ()
    counts = [product((dims_of(each.ty) or ())[:-2]) for each in operands]
    batch = product(made[:-2])
    if is_one(counts[1]):
        rows, counts[0] = counts[0] * rows, 1
    elif not is_one(counts[0]) and not all(equal(each, batch) for each in counts):
        for place, each in enumerate(operands):
            whole = relax.ShapeExpr([*made[:-2], *(dims_of(each.ty) or ())[-2:]])
            operands[place] = builder.emit(relax.op.broadcast_to(each, whole))
        counts = [batch] * 2
    numbers = [*counts, rows, terms, made[-1]]

    def called(left: te.Tensor, right: te.Tensor, *sizes: Any) -> te.Tensor:
        def body(read: Any, written: Any) -> Any:
            arrays = [each.data for each in (*read, *written)]
            failed = tirx.call_extern("int32", FUNCTION, *arrays, *sizes) != 0
            return tirx.IfThenElse(failed, tirx.Evaluate(tirx.tvm_throw_last_error()), None)

        return te.extern([made], [left, right], body, dtype="float32", name="product")

    sizes = [tirx.const(each, "int64") if isinstance(each, int) else each for each in numbers]
    return builder.call_te(called, *operands, *sizes, primfunc_name_hint="product")


def _pad(right: te.Tensor, depth: int, columns: int, width: int) -> te.Tensor:
    """Return a copy with rows padded to whole tiles."""

    def element(*at: Any) -> Any:
        zero = tirx.const(0, "float32")
        return tirx.if_then_else(at[-1] < columns, right(*at[:-1], tirx.min(at[-1], columns - 1)), zero)

    return te.compute((*right.shape[:-2], depth, _up(columns, width)), element, "padded")


def _batch(tensor: te.Tensor, at: list[Any]) -> list[Any]:
    """Return the indices in a tensor's batch, which is broadcast to the product's."""
    extents = tensor.shape[:-2]
    own = at[len(at) - len(extents) :]
    return [0 if int(extent) == 1 else index for index, extent in zip(own, extents, strict=True)]


def _up(extent: int, step: int) -> int:
    return -(-extent // step) * step
