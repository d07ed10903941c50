"""Quantizers of pt2e, and products between them as sums of integers.

Dequantized filters are folded before the graph is read; their integers are looked up in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.fx import Node
from tvm import relax

from ....errors import InvalidProblemError
from ....frontends.torch.fixed import is_dequantizer
from ....frontends.torch.memory import dense, numbers
from ....frontends.torch.nodes import arguments, name_of
from ....frontends.torch.reader import node_problem
from ...ir import moves
from ...ir.constants import static_shape
from ...ir.quantizers import BY_RECIPROCAL, EIGHT_BITS, quantize
from ..quantized import (
    Quantized,
    convolve,
    in_f32,
    multiply,
    multiply_data,
    read_quantized,
    take_zero,
    with_bias,
)
from .arguments import Converters, Given

if TYPE_CHECKING:
    from ...ir.constants import Array

Sums = Callable[[Quantized, Quantized], relax.Expr | None]


def convolve_integers(given: Given) -> relax.Expr | None:
    """Return a convolution of dequantized operands, with its bias; None for other operands."""

    def sums(data: Quantized, weights: Quantized) -> relax.Expr | None:
        shape, taps = static_shape(data.values.ty), static_shape(weights.values.ty)
        if shape is None or taps is None:
            return None
        attributes = {name: given[name] for name in given.nodes}
        try:
            problem = node_problem("aten.convolution.default", attributes, shape, taps, "f32")
        except InvalidProblemError:
            return None
        return convolve(given.emit, problem, data, weights)

    return _with_scales(given, sums, "input", "weight", "bias", 1)


def multiply_integers(
    given: Given, data: str, matrix: str, bias: str = "", transposed: bool = False
) -> relax.Expr | None:
    """Return a product of dequantized data with a fixed matrix, or its transpose, and a bias; None for other operands."""

    def sums(left: Quantized, right: Quantized) -> relax.Expr | None:
        return multiply(given.emit, left, _transpose(right) if transposed else right)

    return _with_scales(given, sums, data, matrix, bias, given[data].ty.ndim - 1)


def multiply_whole(given: Given) -> relax.Expr:
    """Return ``_int_mm.default``, torchao's product of integers, by exact sums.

    Raises
    ------
    ValueError
        If they may exceed 32 bits.
    """
    left, right = given["self"], given["mat2"]
    one, none = np.ones(1, np.float32), np.zeros(1, np.int64)
    made = multiply(given.emit, Quantized(left, one, none, 0), Quantized(right, one, none, 0))
    made = multiply_data(given.emit, (left, None), (right, None)) if made is None else made
    if made is None:
        raise ValueError("its sums may exceed 32 bits")
    return made


def _with_scales(given: Given, sums: Sums, left: str, right: str, bias: str, axis: int) -> relax.Expr | None:
    data, weights = given.dequantized(left), _fixed_integers(given, given.nodes[right])
    computed = _find_computed(given, left) if data is None else None
    data = computed[0] if computed is not None else data
    if data is None or weights is None or data.scale.size != 1:
        return None
    added = given.nodes[bias] if bias else None
    vector = None if added is None else _find_fixed(given, added)
    if added is not None and vector is None:
        return None
    made = sums(data, weights)
    if made is None or computed is None:
        return None if made is None else in_f32(given.emit, made, data, weights, vector, axis)
    _, scale, zero = computed
    made = given.emit(take_zero(given.emit, made, given.binding(made), zero))
    values = in_f32(given.emit, made, data, weights, None, axis)
    values = given.emit(relax.op.multiply(values, scale))
    return values if vector is None else with_bias(given.emit, values, vector.reshape(-1), axis)


def _find_computed(given: Given, name: str) -> tuple[Quantized, relax.Expr, relax.Expr] | None:
    """Return uncentred integers, and their one computed scale and zero point; None for other tensors."""
    call = given.binding(given[name])
    if (
        moves.name_of(call) != "relax.dequantize"
        or str(call.args[0].ty.dtype) not in EIGHT_BITS
        or call.args[1].ty.ndim
    ):
        return None
    values, scale, zero = call.args
    return Quantized(values, np.ones(1, np.float32), np.zeros(1, np.int64), 0), scale, zero


def _fixed_integers(given: Given, node: Node) -> Quantized | None:
    """Return the integers from which a fixed tensor is dequantized; None for other tensors."""
    if node not in given.fixed:
        return None
    if name_of(node) == "permute.default" and list(node.args[1]) == [1, 0]:
        found = _fixed_integers(given, node.args[0])
        return None if found is None else _transpose(found)
    if not is_dequantizer(node):
        return None
    named = arguments(node)
    integers, scale, zero = (_find_fixed(given, each) for each in list(named.values())[:3])
    assert integers is not None and scale is not None and zero is not None
    return read_quantized(
        relax.const(integers),
        relax.const(scale.reshape(-1).astype(np.float32)),
        relax.const(zero.reshape(-1).astype(np.int32)),
        named.get("axis", 0),
    )


def _transpose(weights: Quantized) -> Quantized:
    assert weights.array is not None
    matrix = relax.const(np.ascontiguousarray(weights.array.T))
    return Quantized(matrix, weights.scale, weights.zero, 1 - weights.axis)


def _find_fixed(given: Given, value: Any) -> Array | None:
    """Return the numbers of a fixed argument; None if it is computed."""
    value = given.fixed.get(value, value)
    if isinstance(value, Node):
        return None
    return numbers(dense(value)) if isinstance(value, torch.Tensor) else np.asarray(0 if value is None else value)


def _numbers(given: Given, integers: str) -> list[relax.Expr]:
    """Return a quantizer's scale and zero point, or those along its axis, for integers of a type.

    Raises
    ------
    ValueError
        If they are fixed and invalid.
    """
    made = []
    for name, dtype in zip(list(given.nodes)[1:3], ("float32", "int32"), strict=True):
        array = _find_fixed(given, given.nodes[name])
        if array is None:
            value = given.of_type(given[name], dtype)
        else:
            _check_numbers(array, integers, dtype == "float32")
            value = relax.const(array, dtype)
        alone = "axis" not in given.nodes
        made.append(given.emit(relax.op.reshape(value, ())) if alone and value.ty.ndim else value)
    return made


def _check_numbers(array: Array, integers: str, are_scales: bool) -> None:
    """Raise ValueError if scales, or zero points, are invalid for integers of a type."""
    bounds = np.iinfo(integers)
    if are_scales and not (bad := np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"has a scale of {array[~bad].flat[0]}: scales are positive and finite")
    if not are_scales and not ((array >= bounds.min) & (array <= bounds.max)).all():
        raise ValueError(
            f"has zero points of {array.min()} to {array.max()}: those of {integers} are {bounds.min} to {bounds.max}"
        )


def check_weights(node: Node, fixed: Mapping[Node, Any]) -> None:
    """Raise ValueError if fixed integers are dequantized by an invalid scale or zero point."""
    if node not in fixed or not is_dequantizer(node):
        return
    integers, *both = (fixed.get(each, each) for each in list(arguments(node).values())[:3])
    for number, given in enumerate(both):
        array = numbers(dense(given)) if isinstance(given, torch.Tensor) else np.asarray(0 if given is None else given)
        _check_numbers(array, str(integers.dtype).removeprefix("torch."), number == 0)


def _quantize(given: Given) -> relax.Expr:
    data, bounds = given.of_type(given["input"], "float32"), np.iinfo(given.dtype)
    scale, zero = _numbers(given, given.dtype)
    for name, operator, bound in (
        ("quant_min", relax.op.maximum, bounds.min),
        ("quant_max", relax.op.minimum, bounds.max),
    ):
        if given[name] != bound:  # the data is bounded instead of its integers
            step = np.float32((given[name] - given["zero_point"]) * given["scale"])
            data = given.emit(operator(data, relax.const(step)))
    return given.emit(quantize(BY_RECIPROCAL, data, scale, zero, _axis(given), given.dtype))


def _dequantize(given: Given) -> relax.Expr:
    data = given["input"]
    scale, zero = _numbers(given, str(data.ty.dtype))
    return given.emit(relax.op.dequantize(data, scale, zero, _axis(given), given.dtype))


def _axis(given: Given) -> int:
    return int(given["axis"]) % given["input"].ty.ndim if "axis" in given.nodes else 0


_KINDS = ("per_tensor.default", "per_tensor.tensor", "per_channel.default")
QUANTIZERS: Converters = {
    **{f"quantize_{kind}": _quantize for kind in _KINDS},
    **{f"dequantize_{kind}": _dequantize for kind in _KINDS},
}
