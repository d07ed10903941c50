"""ATen's elementwise operators, in PyTorch's types.

TVM's frontend (0.27) converts a number beside a tensor to the tensor's type, so ``integers + 0.5`` adds 0 and ``integers / 2`` rounds,
and it ignores ``alpha``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from .arguments import Converter, Converters, Given

Operator = Callable[..., relax.Expr]


def _of_two(operator: Operator) -> Converter:
    """Return the converter of an operator on two tensors, or a tensor and a number, in the type of its result."""

    def convert(given: Given) -> relax.Expr:
        left, right = (given.of_type(given[name], given.dtype) for name in ("self", "other"))
        alpha = given.get("alpha")
        if alpha not in (None, 1):
            right = given.emit(relax.op.multiply(right, relax.const(alpha, given.dtype)))
        of_truth = _OF_TRUTH.get(operator, operator) if given.dtype == "bool" else operator
        return given.emit(of_truth(left, right))

    return convert


def _compare(operator: Operator) -> Converter:
    """Return the converter of a comparison in the promoted type of its operands."""

    def convert(given: Given) -> relax.Expr:
        dtype = given.common_type("self", "other")
        return given.emit(operator(*(given.of_type(given[name], dtype) for name in ("self", "other"))))

    return convert


def _divide(given: Given) -> relax.Expr:
    """Return ``div.Tensor_mode`` or ``div.Scalar_mode``."""
    mode, dtype = given["rounding_mode"], given.dtype
    left, right = (given.of_type(given[name], dtype) for name in ("self", "other"))
    if mode == "floor":
        return given.emit(relax.op.floor_divide(left, right))
    quotient = given.emit(relax.op.divide(left, right))  # of integers: truncated
    is_float = dtype.startswith(("float", "bfloat"))
    return given.emit(relax.op.trunc(quotient)) if mode == "trunc" and is_float else quotient


def _power(given: Given) -> relax.Expr:
    base, exponent, dtype = given["self"], given["exponent"], given.dtype
    if dtype.startswith(("float", "bfloat")):
        return given.emit(relax.op.power(given.of_type(base, dtype), given.of_type(exponent, dtype)))
    if not isinstance(exponent, int) or exponent < 0:
        raise ValueError("it raises integers to a power that is negative or computed")
    total: Any = given.of_type(1, dtype) if exponent == 0 else given.of_type(base, dtype)
    if exponent == 0:
        return given.emit(relax.op.full_like(base, total))
    for _ in range(exponent - 1):
        total = given.emit(relax.op.multiply(total, given.of_type(base, dtype)))
    return total


def _of_one(operator: Operator) -> Converter:
    """Return the converter of a function of floating-point numbers, which converts integers to f32."""

    def convert(given: Given) -> relax.Expr:
        if given.dtype == "float64" and operator in (relax.op.cosh, relax.op.sinh):
            raise ValueError("TVM cannot compile it in f64")
        return given.emit(operator(given.of_type(given["self"], given.dtype)))

    return convert


def _reciprocal(given: Given) -> relax.Expr:
    one = relax.const(1.0, given.dtype)
    return given.emit(relax.op.divide(one, given.of_type(given["self"], given.dtype)))


def _sign(given: Given) -> relax.Expr:
    """Return ``sign``, which is 0 for NaN, unlike NumPy's and ONNX's."""
    data = given["self"]
    sign = given.emit(relax.op.sign(data))
    if not given.dtype.startswith(("float", "bfloat")):
        return sign
    return given.emit(relax.op.where(given.emit(relax.op.isnan(data)), relax.const(0, given.dtype), sign))


def _clamp(given: Given) -> relax.Expr:
    """Return ``clamp`` or ``hardtanh``, by numbers or tensors; NaN stays NaN."""
    data = given.of_type(given["self"], given.dtype)
    below, above = relax.op.maximum, relax.op.minimum
    for name, operator in (("min", below), ("min_val", below), ("max", above), ("max_val", above)):
        if given.get(name) is not None:
            data = given.emit(operator(data, given.of_type(given[name], given.dtype)))
    return data


def _where(given: Given) -> relax.Expr:
    left, right = (given.of_type(given[name], given.dtype) for name in ("self", "other"))
    return given.emit(relax.op.where(given.of_type(given["condition"], "bool"), left, right))


def _softplus(given: Given) -> relax.Expr:
    return given.emit(relax.op.nn.softplus(given["self"], float(given["beta"]), float(given["threshold"])))


def _elu(given: Given) -> relax.Expr:
    """Return ``elu.default``; the frontend ignores its last two numbers, and so computed SELU without its scale."""
    data, dtype = given["self"], given.dtype

    def scaled(value: Any, factor: float) -> Any:
        return value if factor == 1 else given.emit(relax.op.multiply(relax.const(factor, dtype), value))

    power = given.emit(relax.op.exp(scaled(data, given["input_scale"])))
    below = given.emit(relax.op.nn.relu(given.emit(relax.op.subtract(relax.const(1.0, dtype), power))))
    total = relax.op.add(scaled(below, -given["alpha"]), given.emit(relax.op.nn.relu(data)))
    return scaled(given.emit(total), given["scale"])


_TWO = {
    "add": relax.op.add,
    "sub": relax.op.subtract,
    "mul": relax.op.multiply,
    "div": relax.op.divide,
    "maximum": relax.op.maximum,
    "minimum": relax.op.minimum,
    "remainder": relax.op.floor_mod,
    "fmod": relax.op.mod,
    "__lshift__": relax.op.left_shift,
    "__rshift__": relax.op.right_shift,
    "atan2": relax.op.atan2,
}
# Operators on bool instead of sums, products and extremes.
_OF_TRUTH = {
    relax.op.add: relax.op.logical_or,
    relax.op.maximum: relax.op.logical_or,
    relax.op.multiply: relax.op.logical_and,
    relax.op.minimum: relax.op.logical_and,
}
_COMPARED = {
    "eq": relax.op.equal,
    "ne": relax.op.not_equal,
    "lt": relax.op.less,
    "le": relax.op.less_equal,
    "gt": relax.op.greater,
    "ge": relax.op.greater_equal,
}
_ONE = {
    name: getattr(relax.op, name)
    for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "rsqrt", "sigmoid", "sin",
        "sinh", "sqrt", "tan", "tanh",
    )
}  # fmt: skip

ARITHMETIC: Converters = {
    **{f"{name}.{of}": _of_two(each) for name, each in _TWO.items() for of in ("Tensor", "Scalar", "default")},
    **{f"{name}.{of}": _compare(each) for name, each in _COMPARED.items() for of in ("Tensor", "Scalar")},
    **{f"{name}.default": _of_one(each) for name, each in _ONE.items()},
    **{f"div.{of}_mode": _divide for of in ("Tensor", "Scalar")},
    **{f"pow.{of}": _power for of in ("Tensor_Tensor", "Tensor_Scalar", "Scalar")},
    **{f"clamp.{of}": _clamp for of in ("default", "Tensor")},
    "hardtanh.default": _clamp,
    "reciprocal.default": _reciprocal,
    "sign.default": _sign,
    "remainder.Scalar_Tensor": _of_two(relax.op.floor_mod),
    "where.self": _where,
    "softplus.default": _softplus,
    "elu.default": _elu,
}
