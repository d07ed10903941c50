"""ATen's operators that neither TVM's frontend (0.27) nor PyTorch's decompositions have, by those that others have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from .torch_given import Converter, Converters, Given

Operator = Callable[..., relax.Expr]


def _both(given: Given) -> tuple[Any, Any]:
    return given.of_type(given["self"], given.dtype), given.of_type(given["other"], given.dtype)


def _known_extreme(operator: Operator) -> Converter:
    """Return how to convert ``fmax`` or ``fmin``, which leave out what is not a number."""

    def convert(given: Given) -> relax.Expr:
        left, right = _both(given)
        if not given.dtype.startswith(("float", "bfloat")):
            return given.emit(operator(left, right))
        found = relax.op.where(relax.op.isnan(right), left, operator(left, right))
        return given.emit(relax.op.where(relax.op.isnan(left), right, found))

    return convert


def _with_sign(given: Given) -> relax.Expr:
    size, other = _both(given)
    size, zero = relax.op.abs(size), relax.const(0, given.dtype)
    # Of zeros the sign is that of infinity over them.
    signed = relax.op.where(relax.op.equal(other, zero), relax.op.divide(relax.const(1, given.dtype), other), other)
    return given.emit(relax.op.where(relax.op.less(signed, zero), relax.op.negative(size), size))


def _hypotenuse(given: Given) -> relax.Expr:
    squares = [relax.op.multiply(each, each) for each in _both(given)]
    return given.emit(relax.op.sqrt(relax.op.add(*squares)))


def _power_of_2(given: Given) -> relax.Expr:
    return given.emit(relax.op.power(relax.const(2, given.dtype), given.of_type(given["self"], given.dtype)))


def _place(given: Given) -> relax.Expr:
    """Return ``searchsorted`` or ``bucketize``: of how many of a sorted row a number is above, or at."""
    if given.get("sorter") is not None:
        raise ValueError("its rows are sorted by a table")
    name = "boundaries" if given.get("boundaries") is not None else "sorted_sequence"
    dtype = given.common_type(name, "self")
    rows, numbers = given.of_type(given[name], dtype), given.of_type(given["self"], dtype)
    if rows.ty.ndim > 1:
        rows = given.emit(relax.op.expand_dims(rows, [-2]))
    numbers = given.emit(relax.op.expand_dims(numbers, [-1]))
    right = given["right"] or given.get("side") == "right"
    below = given.emit((relax.op.less_equal if right else relax.op.less)(rows, numbers))
    return given.emit(relax.op.sum(relax.op.astype(below, given.dtype), -1))


def _vector_sum(given: Given) -> relax.Expr:
    """Return ``addmv`` or ``addbmm``: a product, summed over the batch if there is one, beside what it is added to."""
    if given.get("batch1") is None:
        product = given.emit(relax.op.matmul(given["mat"], given["vec"]))
    else:
        product = given.emit(relax.op.sum(given.emit(relax.op.matmul(given["batch1"], given["batch2"])), 0))

    def scaled(value: Any, factor: float) -> Any:
        return value if factor == 1 else given.emit(relax.op.multiply(value, relax.const(factor, given.dtype)))

    product = scaled(product, given["alpha"])
    return product if given["beta"] == 0 else given.emit(relax.op.add(product, scaled(given["self"], given["beta"])))


def _median(given: Given) -> Any:
    """Return the lower median of all numbers, or along an axis: that in the middle of what is sorted, unless one is no number."""
    data, whole = given["self"], given.get("dim") is None
    if whole or not data.ty.ndim:
        data = given.emit(relax.op.reshape(data, (-1,)))
    axis = 0 if whole else given.axes()[0]
    middle = relax.const([(given.shape_of(data)[axis] - 1) // 2], "int64")

    def chosen(ordered: Any) -> Any:
        found = given.emit(relax.op.take(ordered, middle, axis, mode="clip"))
        return found if given.get("keepdim") else given.emit(relax.op.squeeze(found, [axis]))

    value = chosen(given.emit(relax.op.sort(data, axis)))
    if given.dtype.startswith(("float", "bfloat")):
        lost = given.of_type(given.emit(relax.op.isnan(data)), "int8")
        lost = given.emit(relax.op.max(lost, axis, keepdims=bool(given.get("keepdim"))))
        nothing = relax.const(float("nan"), given.dtype)
        value = given.emit(relax.op.where(given.of_type(lost, "bool"), nothing, value))
    if whole:
        return value
    if not any(user.args[1] == 1 for user in given.node.users):
        return relax.Tuple([value, value])  # nobody asks for the second
    return relax.Tuple([value, chosen(given.emit(relax.op.argsort(data, axis, dtype="int64")))])


RARER: Converters = {
    "fmax.default": _known_extreme(relax.op.maximum),
    "fmin.default": _known_extreme(relax.op.minimum),
    **{f"copysign.{of}": _with_sign for of in ("Tensor", "Scalar")},
    **{f"median.{of}": _median for of in ("default", "dim")},
    "hypot.default": _hypotenuse,
    "exp2.default": _power_of_2,
    **{f"{name}.{of}": _place for name in ("searchsorted", "bucketize") for of in ("Tensor", "Scalar")},
    **{f"{name}.default": _vector_sum for name in ("addmv", "addbmm")},
}
