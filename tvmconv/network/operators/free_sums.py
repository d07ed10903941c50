"""Sums, means and variances along free axes, axis by axis, each in blocks, so that an accumulator adds few numbers.

For fixed extents `block_sums.py` does the same with operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from ..ir.free import is_free
from ..schedule.stages import KEPT
from .block_sums import BLOCK
from .elementwise import in_f32


def sum_of(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a sum; TVM's for fixed extents."""
    return _reduce(builder, call, divide=False)


def mean_of(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a mean, of integers rounded towards 0; TVM's for floating-point numbers and fixed extents."""
    return _reduce(builder, call, divide=True)


def variance_of(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a variance, the mean of squared differences from the mean; TVM's for fixed extents."""
    if not is_free(call.args[0].ty):
        return call.op.get_attr("FLegalize")(builder, call)
    if str(call.ty.dtype) == "float16":
        return in_f32(variance_of, builder, call)
    return builder.call_te(
        _variance, call.args[0], _axes_of(call), bool(call.attrs.keepdims), primfunc_name_hint="variance"
    )


def _reduce(builder: relax.BlockBuilder, call: relax.Call, divide: bool) -> relax.Expr:
    dtype = str(call.ty.dtype)
    # TVM's (0.27) mean of integers writes 64 bits for each number, whatever the type of the result.
    if not is_free(call.args[0].ty) and ("float" in dtype or not divide):
        return call.op.get_attr("FLegalize")(builder, call)
    if dtype == "float16":
        return in_f32(mean_of if divide else sum_of, builder, call)
    return builder.call_te(
        sum_in_turn, call.args[0], _axes_of(call), bool(call.attrs.keepdims), divide, primfunc_name_hint="sum"
    )


def _axes_of(call: relax.Call) -> list[int]:
    rank, given = call.args[0].ty.ndim, call.attrs.axis
    return sorted({int(axis) % rank for axis in (range(rank) if given is None else given)})


def _variance(data: te.Tensor, axes: Sequence[int], keep: bool) -> te.Tensor:
    mean = sum_in_turn(data, axes, keep=True, divide=True)

    def square(*at: Any) -> Any:
        left = data(*at) - mean(*(0 if axis in axes else each for axis, each in enumerate(at)))
        return left * left

    return sum_in_turn(te.compute(data.shape, square, "squares"), axes, keep, divide=True)


def sum_in_turn(data: te.Tensor, axes: Sequence[int], keep: bool, divide: bool) -> te.Tensor:
    """Return the sums of a tensor along axes, the last axis first; to `divide`, the means."""
    total, number = data, tirx.const(1, "int64")
    for axis in reversed(axes):
        extent = total.shape[axis]
        number, blocks = number * extent, (extent + (BLOCK - 1)) // BLOCK
        total = _along(_along(total, axis, blocks, (extent + blocks - 1) // blocks), axis, 1, blocks)
    kept = [size for axis, size in enumerate(total.shape) if keep or axis not in axes]

    def element(*at: Any) -> Any:
        rest = iter(at)
        index = [next(rest) if keep or axis not in axes else 0 for axis in range(len(total.shape))]
        if not divide:
            return total(*index)
        by = number.astype(data.dtype)
        return total(*index) / by if "float" in str(data.dtype) else tirx.truncdiv(total(*index), by)

    return te.compute(kept, element, "reduced")


def _along(data: te.Tensor, axis: int, blocks: Any, size: Any) -> te.Tensor:
    """Return the sums of `blocks` blocks along an axis, each of `size` numbers except the last."""
    extent, step = data.shape[axis], te.reduce_axis((0, size), "k")

    def element(*at: Any) -> Any:
        place = at[axis] * size + step
        value = data(*at[:axis], place, *at[axis + 1 :])
        return te.sum(tirx.if_then_else(place < extent, value, tirx.const(0, data.dtype)), axis=step)

    shape = [blocks if at == axis else each for at, each in enumerate(data.shape)]
    return te.compute(shape, element, "sums", attrs={KEPT: 1})


OPERATORS = {"relax.mean": mean_of, "relax.sum": sum_of, "relax.variance": variance_of}
