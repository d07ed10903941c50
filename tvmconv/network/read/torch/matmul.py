"""ATen's convolutions, products of matrices and attention, by Relax's operators.

TVM's frontend (0.27) lacks transposed convolutions of three dimensions, and reads all sums as f32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ...ir.constants import constant
from ...ir.operators import CONVOLUTIONS, TRANSPOSED
from .arguments import Converters, Given
from .quantized import convolve_integers, multiply_integers, multiply_whole


def _convolution(given: Given) -> relax.Expr:
    if (made := convolve_integers(given)) is not None:
        return made
    data, bias, padding = given["input"], given["bias"], given["padding"]
    rank, transposed = data.ty.ndim - 2, given["transposed"]
    operators = TRANSPOSED if transposed else CONVOLUTIONS
    if rank not in operators:
        raise ValueError(f"it is a convolution of {rank} dimensions")
    attributes = {"strides": given["stride"], "dilation": given["dilation"], "groups": given["groups"]}
    if transposed:
        # Relax refuses output padding that is not below the stride; negative pads do the same.
        padding = [*padding, *(pad - more for pad, more in zip(padding, given["output_padding"], strict=True))]
    output = given.emit(operators[rank](data, given["weight"], padding=padding, **attributes))
    if bias is None:
        return output
    return given.emit(relax.op.add(output, given.emit(relax.op.reshape(bias, (1, -1, *[1] * rank)))))


def _linear(given: Given) -> relax.Expr:
    if (made := multiply_integers(given, "input", "weight", "bias", transposed=True)) is not None:
        return made
    matrix = given.emit(relax.op.permute_dims(given["weight"])) if given["weight"].ty.ndim == 2 else given["weight"]
    product = given.emit(relax.op.matmul(given["input"], matrix))
    return product if given["bias"] is None else given.emit(relax.op.add(product, given["bias"]))


def _product(given: Given) -> relax.Expr:
    other = "other" if given.get("mat2") is None else "mat2"
    made = multiply_integers(given, "self", other)
    return given.emit(relax.op.matmul(given["self"], given[other])) if made is None else made


def _sum_of_product(given: Given) -> relax.Expr:
    """Return ``addmm.default``."""

    def scaled(value: Any, factor: float) -> Any:
        return value if factor == 1 else given.emit(relax.op.multiply(value, relax.const(factor, given.dtype)))

    if given["alpha"] == given["beta"] == 1 and (made := multiply_integers(given, "mat1", "mat2", "self")) is not None:
        return made
    product = scaled(given.emit(relax.op.matmul(given["mat1"], given["mat2"])), given["alpha"])
    # A factor of 0 drops its operand, also NaN.
    return product if given["beta"] == 0 else given.emit(relax.op.add(product, scaled(given["self"], given["beta"])))


def _attention(given: Given) -> relax.Expr:
    """Return ``scaled_dot_product_attention``; PyTorch's decomposition reads all scores to find rows that are masked entirely."""
    query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    dtype, size = given.dtype, given.node.args[0].meta["val"].shape[-1]
    if given["dropout_p"]:
        raise ValueError(f"its dropout is {given['dropout_p']}: call model.eval() before the export")
    if given["enable_gqa"]:
        times, rank = given.dims("query")[-3] // given.dims("key")[-3], key.ty.ndim
        key, value = (given.emit(relax.op.repeat(each, times, rank - 3)) for each in (key, value))
    if not isinstance(size, int):
        raise ValueError(f"its queries have {size} channels, which is not fixed")
    scale = size**-0.5 if given["scale"] is None else given["scale"]
    axes = [*range(key.ty.ndim - 2), key.ty.ndim - 1, key.ty.ndim - 2]
    scaled = given.emit(relax.op.multiply(query, relax.const(scale, dtype)))
    scores = given.emit(relax.op.matmul(scaled, given.emit(relax.op.permute_dims(key, axes))))
    if given["is_causal"]:
        rows, columns = given.dims("query")[-2], given.dims("key")[-2]
        if isinstance(rows, int) and isinstance(columns, int):
            mask = relax.const(np.tril(np.ones((rows, columns), bool)), "bool")
        else:  # a causal mask masks no row entirely
            mask = given.counted(lambda row, column: column <= row, (rows, columns), "bool")
            masked = given.emit(relax.op.where(mask, scores, relax.const(-np.inf, dtype)))
            return given.emit(relax.op.matmul(given.emit(relax.op.nn.softmax(masked, -1)), value))
    shares = given.emit(relax.op.nn.softmax(scores, -1)) if mask is None else _mask(given, scores, mask)
    return given.emit(relax.op.matmul(shares, value))


def _mask(given: Given, scores: Any, mask: Any) -> Any:
    """Return the softmax of masked scores, zeros in rows that are masked entirely."""
    least, fixed = relax.const(-np.inf, given.dtype), constant(mask)
    if str(mask.ty.dtype) == "bool":
        scores = given.emit(relax.op.where(mask, scores, least))
    else:
        scores = given.emit(relax.op.add(scores, given.of_type(mask, given.dtype)))
    shares = given.emit(relax.op.nn.softmax(scores, -1))
    if fixed is not None and (fixed if fixed.dtype == bool else fixed > -np.inf).any(-1).all():
        return shares  # no row is masked entirely
    greatest = given.emit(relax.op.max(scores, -1, keepdims=True))
    empty = given.emit(relax.op.equal(greatest, least))
    return given.emit(relax.op.where(empty, relax.const(0, given.dtype), shares))


PRODUCTS: Converters = {
    "convolution.default": _convolution,
    "linear.default": _linear,
    **{f"{name}.default": _product for name in ("mm", "bmm", "matmul")},
    "_int_mm.default": multiply_whole,
    "addmm.default": _sum_of_product,
    "scaled_dot_product_attention.default": _attention,
}
