"""Products of two tensors that are both data, as those of attention, in tiles that stay in registers.

TVM's is a loop over rows, columns and the sum, whose sums lie in memory: of 12 heads, 197x64 by 64x197, it took 50 to 77 ms, and
this takes 2 (one core of a Zen 3).
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from .schedules import TILES
from .simplify import static_shape

# Rows by columns of a tile: 12 vectors of sums, of the 16 registers of AVX2.
ROWS, COLUMNS = 6, 16
# TVM's number for operators that what follows element by element is fused with.
_OUT_FUSABLE = 4


def matmul(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a product in tiles; TVM's of other types than f32, of vectors, and where the tile would be mostly empty."""
    shapes = [static_shape(each.ty) for each in (*call.args, call)]
    types = {str(each.ty.dtype) for each in (*call.args, call)}
    if types != {"float32"} or any(shape is None or len(shape) < 2 for shape in shapes):
        return call.op.get_attr("FLegalize")(builder, call)
    *batches, rows, columns = shapes[2] or ()
    depth = (shapes[0] or ())[-1]
    if rows < 2 or columns < COLUMNS // 2 or depth < 2:
        return call.op.get_attr("FLegalize")(builder, call)
    height = min(ROWS, rows)

    def product(left: te.Tensor, right: te.Tensor) -> te.Tensor:
        if columns % COLUMNS:
            right = _padded(right, depth, columns)
        k = te.reduce_axis((0, depth), "k")

        def element(*at: Any) -> Any:
            *batch, row, step, lane = at
            column = step * COLUMNS + lane
            # Rows beyond the last are computed as the last, and left away.
            of_left = left(*_batch(left, batch), tirx.min(row, rows - 1), k)
            return te.sum(of_left * right(*_batch(right, batch), k, column), axis=k)

        # The two axes of columns keep schedules from cutting off a tile's last ones.
        whole = (*batches, _up(rows, height), -(-columns // COLUMNS), COLUMNS)
        tiles = te.compute(whole, element, "tiles", attrs={TILES: height})
        return te.compute(
            (*batches, rows, columns), lambda *at: tiles(*at[:-1], at[-1] // COLUMNS, at[-1] % COLUMNS), "product"
        )

    fusable = {"op_pattern": _OUT_FUSABLE}
    return builder.call_te(product, *call.args, primfunc_name_hint="matmul", primfunc_attrs=fusable)


def _padded(right: te.Tensor, depth: int, columns: int) -> te.Tensor:
    """Return a copy whose rows are whole vectors."""

    def element(*at: Any) -> Any:
        zero = tirx.const(0, "float32")
        return tirx.if_then_else(at[-1] < columns, right(*at[:-1], tirx.min(at[-1], columns - 1)), zero)

    return te.compute((*right.shape[:-2], depth, _up(columns, COLUMNS)), element, "padded")


def _batch(tensor: te.Tensor, at: list[Any]) -> list[Any]:
    """Return the indices of a tensor's batch: it has the last axes of the product's, or 1 in place of some."""
    extents = tensor.shape[:-2]
    own = at[len(at) - len(extents) :]
    return [0 if int(extent) == 1 else index for index, extent in zip(own, extents, strict=True)]


def _up(extent: int, step: int) -> int:
    return -(-extent // step) * step
