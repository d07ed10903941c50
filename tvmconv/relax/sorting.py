"""Sorts and the first of a sort, by integers in the order of the numbers: what is not a number is the greatest, as in NumPy.

TVM (0.27) sorts by comparisons that are false of what is not a number, and gave other elements in a wrong order, too.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx, topi

from .extremes import TYPES
from .simplify import static_shape

# All bits but the sign, by the integer's type.
_MAGNITUDE = {"int32": 2**31 - 1, "int64": 2**63 - 1}


def topk(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return the first of a sort; of other types than floating point it is TVM's."""
    attrs = call.attrs
    if not _is_ours(call):
        return call
    axis = int(attrs.axis) % call.args[0].ty.ndim
    indices = builder.emit(
        builder.call_te(
            topi.topk, _keys_of(builder, call), int(attrs.k), axis, "indices", not attrs.largest, str(attrs.dtype)
        )
    )
    if str(attrs.ret_type) == "indices":
        return indices
    values = builder.call_te(_gathered, call.args[0], indices, axis)
    return values if str(attrs.ret_type) == "values" else relax.Tuple([builder.emit(values), indices])


def argsort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return the indices of a sort; of other types than floating point it is TVM's."""
    if not _is_ours(call):
        return call
    axis = int(call.attrs.axis) % call.args[0].ty.ndim
    return _indices(builder, call, axis, str(call.attrs.dtype))


def sort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a sort; of other types than floating point it is TVM's."""
    if not _is_ours(call):
        return call
    axis = int(call.attrs.axis) % call.args[0].ty.ndim
    return builder.call_te(_gathered, call.args[0], builder.emit(_indices(builder, call, axis, "int32")), axis)


def _is_ours(call: relax.Call) -> bool:
    return str(call.args[0].ty.dtype) in TYPES and static_shape(call.args[0].ty) is not None


def _indices(builder: relax.BlockBuilder, call: relax.Call, axis: int, dtype: str) -> relax.Expr:
    ascending = not call.attrs.descending
    return builder.call_te(topi.argsort, _keys_of(builder, call), axis=axis, is_ascend=ascending, dtype=dtype)


def _keys_of(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return builder.emit(builder.call_te(_keys, call.args[0], primfunc_name_hint="keys"))


def _keys(data: te.Tensor) -> te.Tensor:
    """Return an integer for each number; both zeros have the same."""
    number, integer = ("float64", "int64") if str(data.dtype) == "float64" else ("float32", "int32")
    magnitude = tirx.const(_MAGNITUDE[integer], integer)

    def key(*at: Any) -> Any:
        x = data(*at).astype(number)
        bits = tirx.reinterpret(integer, x)
        ordered = tirx.Select(bits < 0, -(bits & magnitude), bits)
        return tirx.Select(tirx.isnan(x), magnitude, ordered)

    return te.compute(data.shape, key, "keys", tag=topi.tag.ELEMWISE)


def _gathered(data: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    def element(*at: Any) -> Any:
        return data(*at[:axis], indices(*at), *at[axis + 1 :])

    return te.compute(indices.shape, element, "gathered")


# By the name of the operator.
SORTING = {"relax.argsort": argsort, "relax.sort": sort, "relax.topk": topk}
