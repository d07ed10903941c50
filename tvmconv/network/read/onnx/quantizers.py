"""QuantizeLinear and DequantizeLinear in the form that TVM's ONNX frontend reads: constants folded, integers of fewer bits as 8 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from ....frontends.onnx.constants import add_constant
from ....frontends.onnx.graph import attributes_of
from ....frontends.onnx.weights import array_of
from .quantized_operators import OF_DEQUANTIZED

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = npt.NDArray[Any]
_READ = ("INT8", "UINT8", "INT16", "UINT16", "INT32")
# Shorter integers, by the type of 8 bits that contains them.
_SHORT = {"INT4": np.int8, "UINT4": np.uint8, "INT2": np.int8, "UINT2": np.uint8}


def read_quantizer(node: NodeProto, types: Mapping[str, int], model: ModelProto) -> list[NodeProto]:
    """Return the replacement of a node, in a model with these types of tensors.

    Dequantized constants, which onnxruntime does not fold, are folded, except filters of integers.

    Raises
    ------
    ValueError
        If networks do not support the node.
    """
    given, constants = attributes_of(node), {each.name: each for each in model.graph.initializer}
    dequantizes = node.op_type == "DequantizeLinear"
    blocks = given.get("block_size", 0)
    if dequantizes and all(not name or name in constants for name in node.input):
        integers = _is_of_integers(node, model)
        if blocks or not integers:
            arrays = [array_of(constants[name]) if name else None for name in (*node.input, "", "")[:3]]
            assert arrays[0] is not None and arrays[1] is not None
            add_constant(
                model, node.output[0], _dequantize(arrays[0], arrays[1], arrays[2], given.get("axis", 1), blocks)
            )
            return []
    of = types.get(node.input[0] if dequantizes else node.output[0], 0)
    name = TensorProto.DataType.Name(of)
    if blocks:
        raise ValueError("has block-wise scales, which are supported for constant data only")
    if given.get("precision", 0) not in (0, TensorProto.FLOAT, types.get(node.input[1])):
        raise ValueError(f"has the precision {TensorProto.DataType.Name(given['precision'])}")
    if dequantizes and name in _SHORT and node.input[0] in constants:
        for at in (0, 2):
            if at < len(node.input) and node.input[at]:
                wide = array_of(constants[node.input[at]]).astype(_SHORT[name])
                node.input[at] = add_constant(model, f"{node.output[0]}.{at}", wide)
    elif of and name not in _READ:
        raise ValueError(f"has the type {name}")
    return [node]


def _dequantize(array: Array, scale: Array, zero: Array | None, axis: int, blocks: int) -> Array:
    """Return dequantized integers with one scale and zero point, one along an axis, or one for each block along it."""

    def of_each(numbers: Array) -> Array:
        if blocks:
            return np.repeat(numbers, blocks, axis).take(range(array.shape[axis]), axis)
        return numbers.reshape(
            [-1 if at == axis % array.ndim else 1 for at in range(array.ndim)] if numbers.size > 1 else ()
        )

    wide = array.astype(np.float32 if array.dtype.kind == "V" else np.int64)  # of less than 8 bits, or f8
    if zero is not None:
        wide = wide - of_each(zero).astype(wide.dtype)
    return np.asarray((wide.astype(np.float32) * of_each(scale).astype(np.float32)).astype(scale.dtype))


def _is_of_integers(node: NodeProto, model: ModelProto) -> bool:
    """Return whether a dequantized tensor is a filter of integers: all readers multiply dequantized data by it."""
    readers = [each for each in model.graph.node if node.output[0] in each.input]
    if not readers or any(each.op_type not in OF_DEQUANTIZED or each.input[1] != node.output[0] for each in readers):
        return False
    others = {each.input[0] for each in readers}
    found = [each for each in model.graph.node if not others.isdisjoint(each.output)]
    return bool(found) and all(each.op_type == "DequantizeLinear" for each in found)
