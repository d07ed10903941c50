"""ATen's reductions along any axes, in PyTorch's types of sums."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from tvm import relax, tirx

from ...ir.free import product
from ...operators.scan import scan_extreme, scan_logarithm
from .arguments import Converter, Converters, Given

Reduce = Callable[..., relax.Expr]


def _along(given: Given, operator: Reduce, data: Any) -> Any:
    """Return a reduction along a node's axes; a tensor without axes unchanged."""
    axes = given.axes()
    return given.emit(operator(data, axes, keepdims=bool(given.get("keepdim")))) if axes else data


def _reduce(operator: Reduce) -> Converter:
    """Return the converter of a reduction in the type of its result, such as 64 bits for a sum of bool."""

    def convert(given: Given) -> relax.Expr:
        return _along(given, operator, given.of_type(given["self"], given.dtype))

    return convert


def _extreme(operator: Reduce) -> Converter:
    """Return the converter of ``amax`` or ``amin``, of bool as integers."""

    def convert(given: Given) -> relax.Expr:
        data = given["self"] if given.dtype != "bool" else given.of_type(given["self"], "uint8")
        return given.of_type(_along(given, operator, data), given.dtype)

    return convert


def _extreme_with_index(operator: Reduce, index: Reduce) -> Converter:
    """Return the converter of ``max.dim`` or ``min.dim``."""

    def convert(given: Given) -> relax.Expr:
        data = given["self"] if str(given["self"].ty.dtype) != "bool" else given.of_type(given["self"], "uint8")
        values = given.of_type(_along(given, operator, data), given.dtype)
        if not any(user.args[1] == 1 for user in given.node.users):
            return relax.Tuple([values, values])  # the second is unread
        if not given.axes():
            return relax.Tuple([values, given.emit(relax.op.zeros((), "int64"))])
        return relax.Tuple([values, _along(given, lambda data, axes, **more: index(data, axes[0], **more), data)])

    return convert


def _any(given: Given) -> relax.Expr:
    """Return ``any``: NaN is true; of `uint8` it is `uint8`."""
    data = given["self"]
    if str(data.ty.dtype) != "bool":
        data = given.emit(relax.op.not_equal(data, relax.const(0, str(data.ty.dtype))))
    numbers = given.emit(relax.op.astype(data, "uint8"))
    return given.of_type(_along(given, relax.op.max, numbers), given.dtype)


def _scan(operator: Reduce) -> Converter:
    """Return the converter of a cumulative sum or product in the type of its result."""

    def convert(given: Given) -> relax.Expr:
        data, axes = given.of_type(given["self"], given.dtype), given.axes()
        return given.emit(operator(data, *axes)) if axes else data

    return convert


def _scan_extreme(above: bool) -> Converter:
    """Return the converter of ``cummax`` or ``cummin`` along a free axis; others are decomposed."""
    return lambda given: given.emit(scan_extreme(given.builder, given["self"], given.axes()[0], above))


def _scan_logarithm(given: Given) -> relax.Expr:
    """Return ``logcumsumexp`` along a free axis."""
    data = given.of_type(given["self"], "float32")
    return given.of_type(given.emit(scan_logarithm(given.builder, data, *given.axes())), given.dtype)


def _variance(given: Given) -> relax.Expr:
    """Return ``var.correction``: squared deviations divided by their number less the correction, 1 by default."""
    axes, correction = given.axes(), given["correction"]
    shape = given.dims("self")
    number, less = product([shape[axis] for axis in axes]), 1 if correction is None else correction
    variance = _along(given, relax.op.variance, given["self"]) if axes else given.emit(relax.op.zeros((), given.dtype))
    if not isinstance(number, int):
        many, left = (given.of_type(each, given.dtype) for each in (number, tirx.max(number - less, 0)))
        return given.emit(relax.op.multiply(variance, given.emit(relax.op.divide(many, left)))) if less else variance
    left = max(number - less, 0)
    if left == number:
        return variance
    return given.emit(relax.op.multiply(variance, relax.const(number / left if left else inf, given.dtype)))


def _variance_and_mean(given: Given) -> relax.Expr:
    return relax.Tuple([_variance(given), _along(given, relax.op.mean, given["self"])])


def _vector_norm(given: Given) -> relax.Expr:
    """Return ``linalg_vector_norm``; types of 16 bits are computed in f32, as squares of f16 overflow."""
    order = given["ord"]
    dtype = "float32" if given.dtype in ("float16", "bfloat16") else given.dtype
    data = given.of_type(given["self"], dtype)
    size = given.emit(relax.op.abs(data))
    if order == 2:
        norm = given.emit(relax.op.sqrt(_along(given, relax.op.sum, given.emit(relax.op.multiply(data, data)))))
    elif order in (inf, -inf):
        norm = _along(given, relax.op.max if order > 0 else relax.op.min, size)
    elif order == 0:
        counted = given.emit(relax.op.not_equal(data, relax.const(0, dtype)))
        norm = _along(given, relax.op.sum, given.of_type(counted, dtype))
    elif order == 1:
        norm = _along(given, relax.op.sum, size)
    else:
        total = _along(given, relax.op.sum, given.emit(relax.op.power(size, relax.const(order, dtype))))
        norm = given.emit(relax.op.power(total, relax.const(1 / order, dtype)))
    return given.of_type(norm, given.dtype)


REDUCTIONS: Converters = {
    **{f"mean.{of}": _reduce(relax.op.mean) for of in ("dim", "default")},
    "sum.dim_IntList": _reduce(relax.op.sum),
    **{f"prod.{of}": _reduce(relax.op.prod) for of in ("dim_int", "default")},
    **{f"{name}.default": _extreme(relax.op.max) for name in ("amax", "max")},
    **{f"{name}.default": _extreme(relax.op.min) for name in ("amin", "min")},
    "max.dim": _extreme_with_index(relax.op.max, relax.op.argmax),
    "min.dim": _extreme_with_index(relax.op.min, relax.op.argmin),
    **{f"any.{of}": _any for of in ("dim", "dims", "default")},
    "cumsum.default": _scan(relax.op.cumsum),
    "cumprod.default": _scan(relax.op.cumprod),
    "cummax.default": _scan_extreme(True),
    "cummin.default": _scan_extreme(False),
    "logcumsumexp.default": _scan_logarithm,
    "var.correction": _variance,
    "var_mean.correction": _variance_and_mean,
    "linalg_vector_norm.default": _vector_norm,
}
