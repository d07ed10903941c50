"""Quantizers: TVM's operator, which divides by a scale, and ours, which multiplies by the reciprocal, as PyTorch does."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import Op, _ffi_api

from .moves import name_of

DIVIDING, BY_RECIPROCAL = "relax.quantize", "tvmconv.quantize_reciprocal"
# Types that quantizers round to.
EIGHT_BITS = ("uint8", "int8")
# The step of an epilogue that rounds as the operator does.
QUANTIZERS = {DIVIDING: "q", BY_RECIPROCAL: "q_reciprocal"}

if BY_RECIPROCAL not in Op.list_op_names():
    _ffi_api.RegisterOp(BY_RECIPROCAL, "a quantizer that multiplies by the reciprocal of its scale")
    _operator, _dividing = (Op.get(name) for name in (BY_RECIPROCAL, DIVIDING))
    _operator.set_num_inputs(3)
    for _name in ("data", "scale", "zero_point"):
        _operator.add_argument(_name, "Tensor", _name)
    _operator.set_attrs_type_key("relax.attrs.QuantizeAttrs")
    for _name in ("FInferType", "FPurity"):
        _operator.set_attr(_name, _dividing.get_attr(_name))


def quantize(kind: str, data: relax.Expr, scale: relax.Expr, zero: relax.Expr, axis: int, dtype: str) -> relax.Call:
    """Return a quantizer of f32, DIVIDING or BY_RECIPROCAL, with one scale and zero point, or one for each index along an axis."""
    call = relax.op.quantize(data, scale, zero, axis, dtype)
    return relax.Call(Op.get(kind), list(call.args), call.attrs)


def is_quantizer(call: Any) -> bool:
    """Return whether a call rounds to integers."""
    return name_of(call) in QUANTIZERS
