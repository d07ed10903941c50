"""ATen's operators that neither TVM's frontend (0.27) nor PyTorch's decompositions have, by those that others have."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from tvm import relax

from .operators import MAX_POOLS
from .torch_given import Converter, Converters, Given
from .torch_windows import LAYOUTS, sizes_of

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


def _maxima(rank: int) -> Converter:
    """Return how to convert a maximum pool that may be asked where in its plane each maximum is."""

    def convert(given: Given) -> relax.Expr:
        data, shape = given["self"], given.fixed_shape("self")
        taps, pads, dilations = (sizes_of(given[name], rank) for name in ("kernel_size", "padding", "dilation"))
        strides = sizes_of(given["stride"] or taps, rank)
        whole = data if len(shape) == rank + 2 else given.emit(relax.op.expand_dims(data, 0))
        attributes = {"strides": strides, "padding": [*pads, *pads], "dilation": dilations}
        pool = MAX_POOLS[rank](whole, taps, ceil_mode=given["ceil_mode"], layout=LAYOUTS[rank], **attributes)
        values = given.emit(pool)
        values = values if len(shape) == rank + 2 else given.emit(relax.op.squeeze(values, [0]))
        if not any(user.args[1] == 1 and user.users for user in given.node.users):
            return relax.Tuple([values, values])  # nobody asks for the second
        outputs = given.shape_of(values)
        places: Any = np.zeros([1] * (2 * rank), np.int64)
        inside: Any = np.ones([1] * (2 * rank), bool)
        for axis, (tap, pad, step, gap) in enumerate(zip(taps, pads, strides, dilations, strict=True)):
            at = np.arange(outputs[axis - rank])[:, None] * step - pad + np.arange(tap) * gap
            extent, form = shape[axis - rank], [1] * (2 * rank)
            form[axis], form[axis + rank] = at.shape
            places = places * extent + at.clip(0, extent - 1).reshape(form)
            inside = inside & ((at >= 0) & (at < extent)).reshape(form)
        count, outer = prod(taps), list(shape[:-rank])
        flat = given.emit(relax.op.reshape(data, [*outer, prod(shape[-rank:])]))
        table = relax.const(places.reshape(-1, count), "int64")
        windows = given.emit(relax.op.take(flat, table, len(outer), mode="clip"))
        least = relax.const(float("-inf"), given.dtype)
        windows = given.emit(relax.op.where(relax.const(inside.reshape(-1, count), "bool"), windows, least))
        best = given.emit(relax.op.argmax(windows, -1))
        row = relax.const(np.arange(places.size // count) * count, "int64")
        found = given.emit(relax.op.take(relax.const(places.ravel(), "int64"), relax.op.add(best, row), 0, mode="clip"))
        return relax.Tuple([values, given.emit(relax.op.reshape(found, outputs))])

    return convert


def _distances(given: Given) -> relax.Expr:
    """Return ``cdist``: the distances between all of some rows and all of others."""
    ones, others, order = given["x1"], given["x2"], given["p"]
    apart = relax.op.subtract(relax.op.expand_dims(ones, [-2]), relax.op.expand_dims(others, [-3]))
    apart = given.emit(apart)
    if order == 2:
        return given.emit(relax.op.sqrt(relax.op.sum(relax.op.multiply(apart, apart), -1)))
    size = given.emit(relax.op.abs(apart))
    if order == 1:
        return given.emit(relax.op.sum(size, -1))
    if order == float("inf"):
        return given.emit(relax.op.max(size, -1))
    raise ValueError(f"its distances are of the order {order}")


def _is_below_zero(given: Given) -> relax.Expr:
    """Return ``signbit``: of zeros the sign is that of infinity over them."""
    data = given["self"]
    dtype = str(data.ty.dtype)
    zero = relax.const(0, dtype)
    if dtype.startswith(("float", "bfloat")):
        turned = relax.op.divide(relax.const(1, dtype), data)
        data = given.emit(relax.op.where(relax.op.equal(data, zero), turned, data))
    return given.emit(relax.op.less(data, zero))


def _shifted(operator: Operator) -> Converter:
    return lambda given: given.emit(operator(*_both(given)))


RARER: Converters = {
    **{f"max_pool{rank}d_with_indices.default": _maxima(rank) for rank in (2, 3)},
    "_cdist_forward.default": _distances,
    "signbit.default": _is_below_zero,
    **{f"__lshift__.{of}": _shifted(relax.op.left_shift) for of in ("Tensor", "Scalar")},
    **{f"__rshift__.{of}": _shifted(relax.op.right_shift) for of in ("Tensor", "Scalar")},
    "fmax.default": _known_extreme(relax.op.maximum),
    "fmin.default": _known_extreme(relax.op.minimum),
    **{f"copysign.{of}": _with_sign for of in ("Tensor", "Scalar")},
    **{f"median.{of}": _median for of in ("default", "dim")},
    "hypot.default": _hypotenuse,
    "exp2.default": _power_of_2,
    **{f"{name}.{of}": _place for name in ("searchsorted", "bucketize") for of in ("Tensor", "Scalar")},
}
