"""Quantized operators as sums of integers, which kernels compute exactly, with the rest in f32.

Sums are convolutions or products of data less its zero point, in 16 bits, with a filter of integers; TVM's frontend computes them in f32.
A QLinearConv multiplies its sums by one factor; a Conv or product between DequantizeLinear and QuantizeLinear by the scales of both,
before the operators that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from ...problem import Problem
from ..ir.constants import constant, static_shape
from ..ir.operators import CONVOLUTIONS, SPATIAL, TRANSPOSED
from ..ir.quantizers import EIGHT_BITS

Emit = Callable[[relax.Expr], relax.Expr]
Array = npt.NDArray[Any]
# Room for a bias beside the sums in 32 bits, none beside 65,792 products of 255 and -128; a larger bias is added in f32.
_MOST_BIAS = 2**24


@dataclass(frozen=True)
class Quantized:
    """Integers of 8 bits, with their scale and zero point.

    Attributes
    ----------
    values
        The tensor of integers.
    scale, zero
        Fixed numbers: one, or one for each index along `axis`.
    """

    values: relax.Expr
    scale: Array
    zero: Array
    axis: int

    @property
    def array(self) -> Array | None:
        """The integers, if they are fixed."""
        return constant(self.values)


def read_quantized(values: relax.Expr, scale: Any, zero: Any, axis: int = 1) -> Quantized | None:
    """Return 8-bit integers with a fixed scale and zero point; None for other types, scales or zero points."""
    fixed = constant(scale)
    offset = np.zeros(1, np.int64) if zero is None else constant(zero)
    if fixed is None or offset is None or str(values.ty.dtype) not in EIGHT_BITS or str(fixed.dtype) != "float32":
        return None
    if not (np.isfinite(fixed).all() and (fixed > 0).all()):
        raise ValueError(
            f"has a scale of {fixed.reshape(-1)[~(np.isfinite(fixed) & (fixed > 0)).reshape(-1)][0]}: scales are positive"
        )
    return Quantized(values, fixed, offset.astype(np.int64), axis % max(values.ty.ndim, 1))


def find_dequantized(builder: relax.BlockBuilder, expr: Any) -> Quantized | None:
    """Return the integers of a dequantized tensor; None for other tensors."""
    call = builder.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
    if not isinstance(call, relax.Call) or getattr(call.op, "name", "") != "relax.dequantize":
        return None
    values, scale, zero = call.args
    return read_quantized(values, scale, zero, int(call.attrs.axis))


def convolve(
    emit: Emit,
    problem: Problem,
    data: Quantized,
    weights: Quantized,
    windows: Mapping[str, Sequence[int]] | None = None,
) -> relax.Expr | None:
    """Return the sums of a convolution, channels first, in 32 bits; None if no kernel computes such integers.

    `windows` are the strides, pads and dilations of a convolution of free extents: the Problem of an example omits those without effect.
    """
    array, transposed = weights.array, problem.op == "convolution_backprop_data"
    if array is None or data.zero.size != 1:
        return None
    outputs = 1 if transposed else 0
    filter_ = _less_zeros(array, weights, outputs)
    if filter_ is None or (transposed and problem.groups > 1 and np.unique(weights.zero).size > 1):
        return None
    letters = SPATIAL[problem.rank]
    attributes = {
        "strides": list(problem.strides),
        "padding": [*problem.pads_begin, *problem.pads_end],
        "dilation": list(problem.dilations),
        "groups": problem.groups,
        "data_layout": f"NC{letters}",
        "out_dtype": "int32",
        **(windows or {}),
    }
    if _may_pass(data, filter_, outputs):
        return None
    centred = _centre(emit, data)
    if not transposed:
        return emit(CONVOLUTIONS[problem.rank](centred, filter_, kernel_layout=f"OI{letters}", **attributes))
    attributes["output_padding"] = list(problem.output_padding)
    return emit(TRANSPOSED[problem.rank](centred, filter_, kernel_layout=f"IO{letters}", **attributes))


def multiply(emit: Emit, data: Quantized, weights: Quantized) -> relax.Expr | None:
    """Return the sums of a product with a fixed matrix in 32 bits; None for other operands, or sums that may overflow."""
    array = weights.array
    if array is None or array.ndim != 2 or data.zero.size != 1 or data.scale.size != 1:
        return None
    filter_ = _less_zeros(array, weights, 1)
    if filter_ is None or _may_pass(data, filter_, 1):
        return None
    return emit(relax.op.matmul(_centre(emit, data), filter_, out_dtype="int32"))


def multiply_data(emit: Emit, *factors: tuple[relax.Expr, relax.Expr | None]) -> relax.Expr | None:
    """Return the sums of a product of two tensors in 32 bits, each less its broadcast zero point; None if they may overflow."""
    shape = static_shape(factors[0][0].ty)
    whole = any(str(values.ty.dtype) not in EIGHT_BITS for values, _ in factors)
    if shape is None or whole or shape[-1] * 255 * 255 >= 2**31:
        return None
    centred = []
    for values, zero in factors:
        wide = emit(relax.op.astype(values, "int32"))
        centred.append(wide if zero is None else emit(relax.op.subtract(wide, emit(relax.op.astype(zero, "int32")))))
    return emit(relax.op.matmul(*centred, out_dtype="int32"))


def _centre(emit: Emit, data: Quantized) -> relax.Expr:
    """Return data less its zero point, so that padding is 0."""
    values = emit(relax.op.astype(data.values, "int16"))
    zero = int(data.zero.item())
    return emit(relax.op.subtract(values, relax.const(zero, "int16"))) if zero else values


def _less_zeros(array: Array, weights: Quantized, outputs: int) -> relax.Expr | None:
    """Return a filter less its zero points, in 8 bits if it fits; None if these or its scales are along another axis than the outputs."""
    zeros, axis = weights.zero, weights.axis
    if any(each.size > 1 and (axis != outputs or each.size != array.shape[axis]) for each in (zeros, weights.scale)):
        return None
    shape = [-1 if at == axis and zeros.size > 1 else 1 for at in range(array.ndim)]
    centred = array.astype(np.int16) - zeros.reshape(shape).astype(np.int16)
    fits = centred.size == 0 or (centred.min() >= -128 and centred.max() <= 127)
    return relax.const(centred.astype(np.int8 if fits else np.int16))


def take_zero(emit: Emit, sums: relax.Expr, call: relax.Call, zero: relax.Expr) -> relax.Expr:
    """Return a call's sums of uncentred data, less those of a computed zero point with the filter."""
    filter_ = constant(call.args[1])
    assert filter_ is not None
    taps, places = filter_.astype(np.int64).sum(0 if filter_.ndim == 2 else 1), {}
    if filter_.ndim > 2 and not any(map(int, call.attrs.padding)):
        taps = taps.sum(tuple(range(1, taps.ndim))).reshape(1, -1, *[1] * (filter_.ndim - 2))
    elif filter_.ndim > 2:  # padding is the zero point, so taps there do not count
        given, made, rank = static_shape(call.args[0].ty), static_shape(call.ty), filter_.ndim - 2
        assert given is not None and made is not None
        for axis in range(rank):
            stride, pad, dilation = (
                int(each[axis]) for each in (call.attrs.strides, call.attrs.padding, call.attrs.dilation)
            )
            at = np.arange(made[2 + axis])[:, None] * stride - pad + dilation * np.arange(filter_.shape[2 + axis])
            # Windows differ only near the ends of an axis.
            inside, places[2 + axis] = np.unique((at >= 0) & (at < given[2 + axis]), axis=0, return_inverse=True)
            taps = np.tensordot(taps, inside, ([1], [1]))
        taps = taps[None]
    whole = emit(relax.op.astype(emit(relax.op.reshape(zero, [1] * taps.ndim)), "int32"))
    left = emit(relax.op.multiply(whole, relax.const(taps.astype(np.int32))))
    for axis, kinds in places.items():
        if taps.shape[axis] > 1:
            left = emit(relax.op.take(left, relax.const(kinds.reshape(-1).astype(np.int64)), axis, mode="clip"))
    return relax.op.subtract(sums, left)


def _may_pass(data: Quantized, filter_: relax.Expr, outputs: int) -> bool:
    """Return whether sums of products with a filter, and a bias, may exceed 32 bits."""
    bounds, zero = np.iinfo(str(data.values.ty.dtype)), int(data.zero.item())
    array = np.abs(constant(filter_).astype(np.int64))  # type: ignore[union-attr]
    sums = array.sum(tuple(axis for axis in range(array.ndim) if axis != outputs))
    return int(sums.max(initial=0)) * max(zero - bounds.min, bounds.max - zero) + _MOST_BIAS >= 2**31


def in_f32(
    emit: Emit, sums: relax.Expr, data: Quantized, weights: Quantized, bias: Array | None, axis: int
) -> relax.Expr | None:
    """Return sums times both scales, with a bias of f32, channels along an axis; None if the bias has another number of channels."""
    outputs = int(sums.ty.shape[axis])
    factor = (data.scale.reshape(-1) * _scales(weights, outputs)).astype(np.float32)
    if bias is None:
        return scale_sums(emit, sums, factor, axis)
    if bias.size not in (1, factor.size, outputs):
        return None
    whole = _integer_bias(bias.reshape(-1), factor)
    if whole is not None:
        return scale_sums(emit, with_bias(emit, sums, whole, axis), factor, axis)
    return with_bias(emit, scale_sums(emit, sums, factor, axis), bias.reshape(-1), axis)


def _scales(weights: Quantized, outputs: int) -> Array:
    """Return the scale of each output channel, or one for all; the groups of a transposed convolution share theirs."""
    scale = weights.scale.reshape(-1)
    return scale if scale.size in (1, outputs) else np.tile(scale, outputs // scale.size)


def scale_sums(emit: Emit, sums: relax.Expr, factor: Array, axis: int) -> relax.Expr:
    """Return sums in f32, each channel times its factor."""
    values = emit(relax.op.astype(sums, "float32"))
    return emit(relax.op.multiply(values, _of_channels(factor.astype(np.float32), sums.ty.ndim, axis)))


def with_bias(emit: Emit, sums: relax.Expr, bias: Array, axis: int) -> relax.Expr:
    """Return sums plus a bias in their type."""
    return emit(relax.op.add(sums, _of_channels(bias.astype(str(sums.ty.dtype)), sums.ty.ndim, axis)))


def _of_channels(vector: Array, rank: int, axis: int) -> relax.Expr:
    """Return a vector over channels, or one number for all, in a shape that broadcasts."""
    shape = [1] * rank
    shape[axis] = vector.size
    return relax.const(np.ascontiguousarray(vector.reshape(shape)))


def _integer_bias(bias: Array, factor: Array) -> Array | None:
    """Return an f32 bias as integers whose products with the factor are exactly the bias; None if there are none."""
    with np.errstate(all="ignore"):
        numbers = np.rint(bias.astype(np.float64) / factor.astype(np.float64))
        same = np.array_equal((numbers.astype(np.float32) * factor).astype(np.float32), bias)
    return numbers.astype(np.int32) if same and np.abs(numbers).max(initial=0) < _MOST_BIAS else None
