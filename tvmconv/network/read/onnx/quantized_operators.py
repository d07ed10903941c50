"""Converters of ONNX's operators on integers, and of those between DequantizeLinear and QuantizeLinear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from ....errors import InvalidProblemError
from ....frontends.onnx.rules import node_problem
from ...ir.constants import constant, static_shape
from ...ir.free import dims_of, is_free
from ..quantized import (
    Array,
    Quantized,
    convolve,
    find_dequantized,
    in_f32,
    multiply,
    multiply_data,
    read_quantized,
    scale_sums,
    take_zero,
    with_bias,
)
from .block_weights import convert_blocks

Convert = Callable[[relax.BlockBuilder, list[Any], dict[str, Any]], relax.Expr | None]
# Operators that are read as sums of integers where what they take is dequantized.
OF_DEQUANTIZED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def convert_quantized(builder: relax.BlockBuilder, kind: str, inputs: Any, given: dict[str, Any]) -> relax.Expr | None:
    """Return an operator by sums of integers; None if that is impossible, with `inputs` prepared for the frontend."""
    taken = [inputs[at] if at < len(inputs) else None for at in range(max(9, len(inputs)))]
    if kind in OF_DEQUANTIZED:
        made = _multiply_dequantized(builder, kind, taken, given)
        if made is None:
            for at in range(min(len(inputs), 2)):
                inputs[at] = _fold(builder, inputs[at])
        return made
    if kind not in CONVERTERS:
        return None
    made = CONVERTERS[kind](builder, taken, given)
    if made is None:
        if is_free(inputs[0].ty):
            raise ValueError(f"{kind} needs fixed extents: give the inputs' shapes as numbers")
        raise ValueError(
            f"{kind} needs one constant zero point for its data, a constant filter with constant scales and zero points, and sums"
            " that fit in 32 bits"
        )
    return made


def _multiply_dequantized(
    builder: relax.BlockBuilder, kind: str, inputs: list[Any], given: dict[str, Any]
) -> relax.Expr | None:
    """Return a convolution or product of dequantized operands, with its bias, in f32."""
    data, weights = (find_dequantized(builder, each) for each in inputs[:2])
    bias = constant(inputs[2])
    if data is None or weights is None or data.scale.size != 1 or (inputs[2] is not None and bias is None):
        return None
    if kind == "Gemm":
        weights = _as_matrix(weights, given)
        if weights is None or (bias is not None and bias.size not in (1, *bias.shape[-1:])):  # of rows
            return None
    sums = _sums(builder, kind, data, weights, given)
    if sums is None:
        return None
    axis = sums.ty.ndim - 1 if kind in ("Gemm", "MatMul") else 1
    return in_f32(builder.emit, sums, data, weights, bias, axis)


def _sums(
    builder: relax.BlockBuilder, kind: str, data: Quantized, weights: Quantized, given: dict[str, Any]
) -> relax.Expr | None:
    if kind not in ("Conv", "ConvTranspose"):
        return multiply(builder.emit, data, weights)
    dims, taps = dims_of(data.values.ty), static_shape(weights.values.ty)
    named = {name: each.decode() if isinstance(each, bytes) else each for name, each in given.items()}
    free = is_free(data.values.ty)
    if dims is None or taps is None or (free and (kind != "Conv" or named.get("auto_pad", "NOTSET") != "NOTSET")):
        return None
    rank = len(taps) - 2
    windows: dict[str, Any] = {
        "strides": named.get("strides", [1] * rank),
        "padding": named.get("pads", [0] * 2 * rank),
        "dilation": named.get("dilations", [1] * rank),
    }
    # Free extents are replaced by the smallest that fit the filter; nothing that depends on them is used.
    spans = [1, 1, *(step * (size - 1) + 1 for step, size in zip(windows["dilation"], taps[2:], strict=True))]
    sizes = [size if isinstance(size, int) else span for size, span in zip(dims, spans, strict=True)]
    try:
        problem = node_problem(kind, named, sizes, taps)
    except InvalidProblemError:
        return None
    return convolve(builder.emit, problem, data, weights, windows if free else None)


def _as_matrix(weights: Quantized, given: dict[str, Any]) -> Quantized | None:
    """Return the weights of a Gemm as those of a product; None if it also scales, or transposes its data."""
    array = weights.array
    if given.get("transA", 0) or given.get("alpha", 1.0) != 1 or given.get("beta", 1.0) != 1 or array is None:
        return None
    if not given.get("transB", 0):
        return weights
    return Quantized(relax.const(np.ascontiguousarray(array.T)), weights.scale, weights.zero, 1 - weights.axis)


def _fold(builder: relax.BlockBuilder, expr: Any) -> Any:
    """Return the dequantized numbers of fixed integers; any other expression unchanged."""
    found = find_dequantized(builder, expr)
    array = None if found is None else found.array
    if found is None or array is None:
        return expr
    shape = [-1 if at == found.axis else 1 for at in range(array.ndim)]
    zero, scale = (each.reshape(shape if each.size > 1 else [1] * array.ndim) for each in (found.zero, found.scale))
    return relax.const(((array.astype(np.int32) - zero).astype(np.float32) * scale).astype(np.float32))


def _qlinear(kind: str) -> Convert:
    """Return the converter of a QLinearConv or QLinearMatMul, or of a QGemm with a bias: sums times one factor, rounded, plus the zero point."""

    def convert(builder: relax.BlockBuilder, inputs: list[Any], given: dict[str, Any]) -> relax.Expr | None:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = inputs
        if x.ty.ndim == w.ty.ndim == 1:
            made = convert(builder, [builder.emit(relax.op.expand_dims(x, 0)), *inputs[1:]], given)
            return None if made is None else relax.op.squeeze(builder.emit(made), [0])
        axis = 0 if kind == "Conv" else w.ty.ndim - 1
        data, weights, output = (
            read_quantized(x, x_scale, x_zero),
            read_quantized(w, w_scale, w_zero, axis),
            constant(y_scale),
        )
        zero = constant(y_zero)
        if data is None or weights is None or output is None or output.size != 1 or zero is None or zero.size != 1:
            return None
        if not (np.isfinite(output).all() and (output > 0).all()):
            raise ValueError(f"has an output scale of {output.item()}: scales are positive")
        sums, offset = _sums(builder, kind, data, weights, given), constant(bias)
        if sums is None and kind == "MatMul" and weights.zero.size == 1:
            zeros = (relax.const(each.zero.reshape(()).astype(np.int32)) for each in (data, weights))
            sums = multiply_data(builder.emit, (x, next(zeros)), (w, next(zeros)))
        if sums is None or (bias is not None and offset is None):
            return None
        channels = 1 if kind == "Conv" else sums.ty.ndim - 1
        if offset is not None:
            sums = _add(builder, sums, offset, channels)
        scale = np.float32(given.get("alpha", 1)) * data.scale.reshape(-1)
        factor = (scale * weights.scale.reshape(-1)).astype(np.float32) / output.reshape(-1)
        values = scale_sums(builder.emit, sums, factor.astype(np.float32), channels)
        one, added = relax.const(np.float32(1)), relax.const(zero.reshape(()))
        return relax.op.quantize(values, one, added, axis=0, out_dtype=str(zero.dtype))

    return convert


def _integer(kind: str) -> Convert:
    """Return the converter of a ConvInteger or MatMulInteger, sums whose data may have a computed zero point."""

    def convert(builder: relax.BlockBuilder, inputs: list[Any], given: dict[str, Any]) -> relax.Expr | None:
        x, w, x_zero, w_zero = inputs[:4]
        one, axis = relax.const(np.ones(1, np.float32)), 0 if kind == "Conv" else w.ty.ndim - 1
        is_computed = x_zero is not None and constant(x_zero) is None
        data = read_quantized(x, one, None if is_computed else x_zero)
        weights = read_quantized(w, one, w_zero, axis)
        sums = None if data is None or weights is None else _sums(builder, kind, data, weights, given)
        if sums is None and kind == "MatMul":
            return multiply_data(builder.emit, (x, x_zero), (w, w_zero))
        if sums is None or not is_computed:
            return sums
        if is_free(x.ty) and any(map(int, getattr(builder.lookup_binding(sums).attrs, "padding", ()))):
            return None
        return take_zero(builder.emit, sums, builder.lookup_binding(sums), x_zero)

    return convert


def _gemm(builder: relax.BlockBuilder, inputs: list[Any], given: dict[str, Any]) -> relax.Expr | None:
    """Return a QGemm: a QLinearMatMul with a bias or, without an output scale, a product in f32."""
    a, a_scale, a_zero, b, b_scale, b_zero, bias, y_scale, y_zero = inputs
    weights = read_quantized(b, b_scale, b_zero, 0 if given.get("transB", 0) else 1)
    plain = None if weights is None else _as_matrix(weights, {"transB": given.get("transB", 0)})
    if plain is None:
        return None
    alpha = {"alpha": given.get("alpha", 1.0)}
    if given.get("transA", 0):
        a = builder.emit(relax.op.permute_dims(a))
    numbers = [relax.const(plain.scale), relax.const(plain.zero.astype(np.int32))]
    if y_scale is not None:
        return _qlinear("MatMul")(builder, [a, a_scale, a_zero, plain.values, *numbers, y_scale, y_zero, bias], alpha)
    data, offset = read_quantized(a, a_scale, a_zero), constant(bias)
    sums = None if data is None else multiply(builder.emit, data, plain)
    if data is None or sums is None or (bias is not None and offset is None):
        return None
    if offset is not None:
        sums = _add(builder, sums, offset, 1)
    scale = np.float32(alpha["alpha"]) * data.scale.reshape(-1)
    return scale_sums(builder.emit, sums, scale * plain.scale.reshape(-1), 1)


def _add(builder: relax.BlockBuilder, sums: relax.Expr, bias: Array, axis: int) -> relax.Expr:
    """Return sums plus a bias: a vector along an axis, or of a shape that broadcasts."""
    if bias.ndim > 1:
        return builder.emit(relax.op.add(sums, relax.const(bias)))
    return with_bias(builder.emit, sums, bias.reshape(-1), axis)


def quantize_dynamic(builder: relax.BlockBuilder, inputs: list[Any], given: dict[str, Any]) -> relax.Expr:
    """Return a DynamicQuantizeLinear's numbers of 8 bits, scale and zero point; the scale of nothing but zeros is 1, as onnxruntime's."""
    emit, (none, one, most) = builder.emit, (relax.const(np.float32(each)) for each in (0, 1, 255))
    least = emit(relax.op.minimum(none, relax.op.min(inputs[0])))
    span = emit(relax.op.subtract(relax.op.maximum(none, relax.op.max(inputs[0])), least))
    scale = emit(relax.op.where(relax.op.equal(span, none), one, relax.op.divide(span, most)))
    zero = relax.op.clip(relax.op.subtract(none, relax.op.divide(least, scale)), 0, 255)
    zero = emit(relax.op.astype(relax.op.round(zero), "uint8"))
    return relax.Tuple([emit(relax.op.quantize(inputs[0], scale, zero, axis=0, out_dtype="uint8")), scale, zero])


CONVERTERS: dict[str, Convert] = {
    "ConvInteger": _integer("Conv"),
    "DynamicQuantizeLinear": quantize_dynamic,
    "MatMulInteger": _integer("MatMul"),
    "MatMulNBits": convert_blocks,
    "QGemm": _gemm,
    "QLinearConv": _qlinear("Conv"),
    "QLinearMatMul": _qlinear("MatMul"),
}
