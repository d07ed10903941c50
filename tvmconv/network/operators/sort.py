"""Sorts and top-k, by integers in the order of the numbers: NaN is the greatest, as in NumPy.

TVM (0.27) sorts by comparisons that are false for NaN, which misplaced other elements, too, and calls its runtime. Here a C function
sorts the integers (`tvmconv/lowering/native/operators/sorting.c`).
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax, te, tirx, topi

from ..ir.free import dims_of
from .elementwise import Legalize

# All bits but the sign, by the integer's type.
_MAGNITUDE = {"int32": 2**31 - 1, "int64": 2**63 - 1}

FUNCTION = "tvmconv_argsort"


def topk(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return the first of a sort."""
    attrs = call.attrs
    axis = int(attrs.axis) % call.args[0].ty.ndim
    count = (dims_of(call.ty.fields[0] if isinstance(call.ty, relax.TupleType) else call.ty) or ())[axis]
    indices = builder.emit(_indices(builder, call, axis, str(attrs.dtype), bool(attrs.largest), count))
    if str(attrs.ret_type) == "indices":
        return indices
    values = builder.call_te(topi.gather, call.args[0], axis, indices)
    return values if str(attrs.ret_type) == "values" else relax.Tuple([builder.emit(values), indices])


def argsort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return the indices of a sort."""
    axis = int(call.attrs.axis) % call.args[0].ty.ndim
    return _indices(builder, call, axis, str(call.attrs.dtype), bool(call.attrs.descending))


def sort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a sort."""
    axis = int(call.attrs.axis) % call.args[0].ty.ndim
    indices = builder.emit(_indices(builder, call, axis, "int32", bool(call.attrs.descending)))
    return builder.call_te(topi.gather, call.args[0], axis, indices)


def _indices(
    builder: relax.BlockBuilder,
    call: relax.Call,
    axis: int,
    dtype: str,
    descending: bool,
    count: Any = None,
) -> relax.Expr:
    keys = builder.emit(builder.call_te(_keys, call.args[0], primfunc_name_hint="keys"))
    return builder.call_te(_sort, keys, axis, descending, count, dtype, primfunc_name_hint="argsort")


def _sort(keys: te.Tensor, axis: int, descending: bool, count: Any, dtype: str) -> te.Tensor:
    shape, size = list(keys.shape), keys.shape[axis]
    numbers = [prod(shape[:axis]), size, prod(shape[axis + 1 :]), size if count is None else count]
    made = [*shape[:axis], numbers[-1], *shape[axis + 1 :]]

    def body(given: Any, written: Any) -> Any:
        # All are 64 bits, as free extents are: WebAssembly checks arguments against the function's declaration.
        sizes = [tirx.Cast("int64", each) for each in (*numbers, int(descending), 8 if dtype == "int64" else 4)]
        failed = tirx.call_extern("int32", FUNCTION, given[0].data, written[0].data, *sizes) != 0
        return tirx.IfThenElse(failed, tirx.Evaluate(tirx.tvm_throw_last_error()), None)

    return te.extern([made], [keys], body, dtype="int64" if dtype == "int64" else "int32", name="argsort")


def _keys(data: te.Tensor) -> te.Tensor:
    """Return an integer for each number, in the same order; both zeros have the same."""
    if not str(data.dtype).startswith(("float", "bfloat")):
        # Unsigned numbers of 64 bits are ordered like signed ones once the first bit is flipped.
        flipped = tirx.const(-(2**63) if str(data.dtype) == "uint64" else 0, "int64")
        return te.compute(data.shape, lambda *at: data(*at).astype("int64") ^ flipped, "keys", tag=topi.tag.ELEMWISE)
    number, integer = ("float64", "int64") if str(data.dtype) == "float64" else ("float32", "int32")
    magnitude = tirx.const(_MAGNITUDE[integer], integer)

    def key(*at: Any) -> Any:
        x = data(*at).astype(number)
        bits = tirx.reinterpret(integer, x)
        ordered = tirx.Select(bits < 0, -(bits & magnitude), bits)
        return tirx.Select(tirx.isnan(x), magnitude, ordered).astype("int64")

    return te.compute(data.shape, key, "keys", tag=topi.tag.ELEMWISE)


# Functions by the operators' names.
OPERATORS: dict[str, Legalize] = {f"relax.{make.__name__}": make for make in (argsort, sort, topk)}
