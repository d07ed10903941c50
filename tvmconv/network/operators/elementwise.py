"""Activations outside kernels, by the vector arithmetic of our kernels' epilogues, and helpers of other legalizations.

TVM calls the C library's functions, a number at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx, topi

from ...algorithms.epilogue import apply_operator
from ...epilogue import Step
from ..ir.constants import constant
from ..ir.free import dims_of, has_elements, is_one
from ..ir.graph import scalar

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
FLOATS = ("float32", "float16")
# TVM's pattern kinds for FuseOps: operators whose elements depend on few others, operators into which following elementwise ones are
# fused, and operators that are not fused.
INJECTIVE, OUT_FUSABLE, OPAQUE = 2, 4, 8


def by_element(function: Callable[[Any], Any], name: str) -> Legalize:
    """Return the legalization of an elementwise operator by a function of f32; TVM's for other types than f32 and f16."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if str(call.ty.dtype) not in FLOATS:
            return call.op.get_attr("FLegalize")(builder, call)
        return builder.call_te(computed, call.args[0], primfunc_name_hint=name)

    def computed(data: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return function(data(*at).astype("float32")).astype(data.dtype)

        return te.compute(data.shape, element, name, tag=topi.tag.ELEMWISE)

    return legalize


def in_f32(legalize: Legalize, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return an operator on tensors of 16 or 8 bits as one on f32, between conversions."""
    wide = [builder.emit(builder.call_te(topi.cast, each, "float32")) for each in call.args]
    computed = builder.emit(legalize(builder, builder.normalize(relax.Call(call.op, wide, call.attrs))))
    return builder.call_te(topi.cast, computed, str(call.ty.dtype))


def with_half_in_f32(legalize: Legalize) -> Legalize:
    """Return a legalization that computes f16 in f32: sums of f16 stop at 2,048 ones, and overflow."""

    def widened(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        return in_f32(legalize, builder, call) if str(call.ty.dtype) == "float16" else legalize(builder, call)

    return widened


def broadcast(tensor: te.Tensor, at: Sequence[Any]) -> Any:
    """Return the element of a broadcast tensor at an index of the result."""
    own = at[len(at) - len(tensor.shape) :]
    return tensor(*(0 if is_one(size) else each for size, each in zip(tensor.shape, own, strict=True)))


def by_pair(function: Callable[[Any, Any], Any], name: str) -> Legalize:
    """Return the legalization of an operator on two numbers by a function, which gets f16 as f32 and bool as 8 bits; TVM's for integers."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        dtype, known = str(call.args[0].ty.dtype), all(has_elements(each.ty) for each in (*call.args, call))
        if dtype not in (*FLOATS, "float64", "bool") or not known:
            return call.op.get_attr("FLegalize")(builder, call)
        # A number in the function's code needs no memory.
        operands = [each if (number := scalar(constant(each))) is None else number for each in call.args]
        wide, shape = {"float16": "float32", "bool": "uint8"}.get(dtype, dtype), dims_of(call.ty) or ()
        return builder.call_te(computed, *operands, wide, shape, str(call.ty.dtype), primfunc_name_hint=name)

    def computed(left: Any, right: Any, wide: str, shape: Sequence[int], dtype: str) -> te.Tensor:
        def element(*at: Any) -> Any:
            def of(operand: Any) -> Any:
                is_number = isinstance(operand, float)
                return tirx.const(operand, wide) if is_number else broadcast(operand, at).astype(wide)

            return function(of(left), of(right)).astype(dtype)

        return te.compute(shape, element, name, tag=topi.tag.BROADCAST)

    return legalize


def _by_step(name: str) -> Legalize:
    return by_element(lambda x: apply_operator(Step(name), x), name)


# Functions by the operators' names.
OPERATORS = {
    "relax.nn.gelu": _by_step("gelu"),
    "relax.nn.gelu_tanh": _by_step("gelu_tanh"),
    "relax.nn.silu": _by_step("silu"),
    "relax.sigmoid": _by_step("sigmoid"),
    "relax.tanh": _by_step("tanh"),
}
