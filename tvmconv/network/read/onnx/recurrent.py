"""ONNX's GRU, LSTM and RNN, which TVM's ONNX frontend (0.27) lacks, as loops over their steps, whose number may be free.

Microsoft's DynamicQuantizeLSTM multiplies quantized inputs, all at once, and quantized states, in each step, by integer weights; the
loops do the same with states in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from ...ir.constants import constant
from ...ir.free import dims_of
from ..recurrent import Array, multiply_steps, walk_steps
from .free import text_of, word_of
from .quantized_operators import convert_quantized, quantize_dynamic
from .unroll_recurrent import ACTIVATIONS, GATES

# Operators that are converted here.
RECURRENT = (*GATES, "DynamicQuantizeLSTM")


def convert_recurrent(
    builder: relax.BlockBuilder, kind: str, inputs: Sequence[Any], given: Mapping[str, Any]
) -> relax.Expr:
    """Return the outputs of a node: all steps, the last states and the last cells.

    Raises
    ------
    ValueError
        If this use of the operator is not supported.
    """
    is_rounded, kind = kind not in GATES, kind.removeprefix("DynamicQuantize")
    data, *others = [*inputs, *[None] * 12][:12]
    weights, recurrent, bias = (None if each is None else constant(each) for each in others[:3])
    emit: Callable[[relax.Expr], relax.Expr] = builder.emit
    dims = dims_of(data.ty)
    if dims is None or weights is None or recurrent is None or (others[2] is not None and bias is None):
        raise ValueError("its weights are not fixed, or the shape of its data is unknown")
    dtype = str(data.ty.dtype)
    if dtype == "float64":
        raise ValueError("it is of float64; loops over steps compute in float32 only")
    if is_rounded:
        numbers = [array for each in others[7:] if (array := constant(each)) is not None]
        if len(numbers) < 4:
            raise ValueError("its scales and zero points are not fixed")
        multiply = _multiply_rounded(builder, data, weights, numbers[:2])
        recurrent = _dequantize(recurrent, *numbers[2:])
    directions, _, size = recurrent.shape
    kinds = [name for number in range(directions) if (name := kind_of(kind, given, number))]
    if len(kinds) < directions:
        names = ", ".join(map(text_of, given["activations"]))
        raise ValueError(f"it has the activations {names}, which loops over steps do not support")
    if bias is None:
        bias = np.zeros((directions, 2 * GATES[kind] * size), np.float32)
    recurrent, bias = (each.astype(np.float32) for each in (recurrent, bias))
    data, *others[4:6] = (each if each is None else _cast(emit, each, "float32") for each in (data, *others[4:6]))
    found = []
    for number, name in enumerate(kinds):
        states = [_initial(emit, each, number, (dims[1], size)) for each in others[4:6]]
        backward = number == 1 or word_of(given, "direction", "forward") == "reverse"
        if is_rounded:
            name, product = "lstm_rounded", multiply(number)
        else:
            product = multiply_steps(builder, data, weights[number].astype(np.float32))
        biases = np.split(bias[number], 2)
        steps, last, cell = walk_steps(builder, name, product, [recurrent[number]], biases, states, backward)
        found.append((emit(relax.op.expand_dims(steps, 1)), last, cell))
    joined = [
        emit(relax.op.concat(list(parts), axis))
        for axis, parts in zip((1, 0, 0), zip(*found, strict=True), strict=True)
    ]
    outputs = [_cast(emit, each, dtype) for each in joined[: given["tvm_custom"]["num_outputs"]]]
    return outputs[0] if len(outputs) == 1 else relax.Tuple(outputs)


def _multiply_rounded(
    builder: relax.BlockBuilder, data: relax.Expr, weights: Array, numbers: Sequence[Array]
) -> Callable[[int], relax.Expr]:
    """Return a function of a direction: the product of data, quantized to 8 bits, and its integer weights, dequantized."""
    emit: Callable[[relax.Expr], relax.Expr] = builder.emit
    rounded = emit(quantize_dynamic(builder, [data], {}))
    values, scale, zero = (emit(relax.TupleGetItem(rounded, part)) for part in range(3))

    def multiply(number: int) -> relax.Expr:
        scales, zeros = (each[number].reshape(-1) for each in numbers)
        taken = [values, relax.const(weights[number]), zero, relax.const(zeros)]
        sums = emit(convert_quantized(builder, "MatMulInteger", taken, {}))
        return emit(relax.op.multiply(relax.op.astype(sums, "float32"), relax.op.multiply(scale, relax.const(scales))))

    return multiply


def _dequantize(weights: Array, scales: Array, zeros: Array) -> Array:
    """Return weights ``[directions, size, gates * size]``, with scales for each direction or column, dequantized and transposed."""
    scales, zeros = (each.reshape(len(weights), 1, -1).astype(np.float32) for each in (scales, zeros))
    return np.ascontiguousarray(((weights - zeros) * scales).swapaxes(1, 2))


def kind_of(kind: str, given: Mapping[str, Any], number: int) -> str | None:
    """Return the loop's kind for a direction; None if it does not support the activations."""
    names = [text_of(each) for each in given.get("activations", [])]
    count = len(ACTIVATIONS[kind])
    names = names[number * count : (number + 1) * count] or ACTIVATIONS[kind]
    if kind == "RNN":
        return names[0].lower() if names[0] in ("Tanh", "Relu") else None
    if names != ACTIVATIONS[kind]:
        return None
    return "gru_linear" if kind == "GRU" and given.get("linear_before_reset") else kind.lower()


def _cast(emit: Callable[[relax.Expr], relax.Expr], value: relax.Expr, dtype: str) -> relax.Expr:
    return value if str(value.ty.dtype) == dtype else emit(relax.op.astype(value, dtype))


def _initial(emit: Callable[[relax.Expr], relax.Expr], given: Any, number: int, shape: Sequence[Any]) -> relax.Expr:
    """Return the initial state of a direction."""
    if given is None:
        return emit(relax.op.full(relax.ShapeExpr(list(shape)), relax.const(0, "float32"), "float32"))
    one = emit(relax.op.strided_slice(given, [0], [number], [number + 1], assume_inbound=True))
    return emit(relax.op.reshape(one, list(shape)))
