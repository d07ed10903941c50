"""Values of an IR that depend on no input, computed by OpenVINO's own operations; integer weights stay integers with scales."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import openvino

from ..onnx.fake_quantize import find_quantizer

Array = npt.NDArray[Any]

# Operations with results that change between calls, and those with graphs inside.
_CHANGING = ("Parameter", "ReadValue", "RandomUniform", "Multinomial", "If", "Loop", "TensorIterator")
_INTEGERS = ("i4", "u4", "i8", "u8")
_FLOATS = ("f16", "bf16", "f32")
# Types that NumPy lacks, with wider ones that hold their values.
_WIDER = {"i4": np.int8, "u4": np.uint8} | dict.fromkeys(("nf4", "f4e2m1", "f8e4m3", "f8e5m2", "f8e8m0"), np.float32)
# Operations that move elements without changing them.
_MOVES = ("Reshape", "Squeeze", "Transpose", "Unsqueeze")


@dataclass(frozen=True)
class DequantizedWeights:
    """Integers of at most 8 bits, less `zero`, times `scale`; both are broadcast."""

    integers: Array
    scale: Array
    zero: Array

    @property
    def array(self) -> Array:
        """Return the numbers, in f32."""
        return (self.integers.astype(np.float32) - self.zero.astype(np.float32)) * self.scale.astype(np.float32)

    def move(self, change: Callable[[Array], Array]) -> DequantizedWeights:
        """Return them after a move."""
        every = (np.broadcast_to(each, self.integers.shape) for each in (self.scale, self.zero))
        return DequantizedWeights(change(self.integers), *map(change, every))

    def find_line(self) -> tuple[int | None, Array, Array] | None:
        """Return the axis along which scales and zero points differ, and both along it; None: no quantizer has them.

        A quantizer's differ along one axis at most, and are not negative, as NNCF's scales of weights may be.
        """
        whole = [np.broadcast_to(each, self.integers.shape) for each in (self.scale, self.zero)]
        axes = {axis for each in whole for axis in range(each.ndim) if (each != each.take([0], axis)).any()}
        if len(axes) > 1:
            return None
        axis = next(iter(axes), None)
        scale, zero = (each[tuple(slice(None) if at == axis else 0 for at in range(each.ndim))] for each in whole)
        kept = zero.astype(self.integers.dtype)
        is_quantizer = (kept == zero).all() and not (scale < 0).any()
        return (axis, scale.astype(np.float32), kept) if is_quantizer else None


class FixedValues:
    """Fixed values of an IR's outputs; :meth:`take` gets its operations in order."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Array | DequantizedWeights] = {}

    def take(self, op: Any) -> bool:
        """Compute an operation whose inputs are fixed; return whether they are."""
        kind = op.get_type_name()
        if kind == "Constant":
            self._known[op.get_name(), 0] = _array_of(op)
            return True
        if kind == "ShapeOf" and op.get_input_partial_shape(0).is_static:
            dtype = op.get_output_element_type(0).to_dtype()
            self._known[op.get_name(), 0] = np.array(op.get_input_partial_shape(0).to_shape(), dtype)
            return True
        given = [self.of(each) for each in op.input_values()]
        if not given or kind in _CHANGING or kind == "Result" or any(each is None for each in given):
            return False
        if kind == "FakeQuantize" and not all(np.isfinite(_as_array(each)).all() for each in given[1:]):
            return False  # refused when it is translated
        made = _dequantize(op, given)
        values: Sequence[Array | DequantizedWeights] | None = (
            [made] if made is not None else _evaluate(op, [_as_array(each) for each in given])
        )
        if values is None:
            return False
        self._known.update({(op.get_name(), at): each for at, each in enumerate(values)})
        return True

    def of(self, output: Any) -> Array | DequantizedWeights | None:
        """Return the value of an output; None: it is not fixed."""
        return self._known.get((output.get_node().get_name(), output.get_index()))

    def array(self, output: Any) -> Array | None:
        """Return the numbers of an output in its type; None: it is not fixed."""
        value = self.of(output)
        if not isinstance(value, DequantizedWeights):
            return value
        return value.array.astype(_dtype_of(output.get_element_type()))


def _as_array(value: Any) -> Array:
    return value.array if isinstance(value, DequantizedWeights) else value


def _dtype_of(element: Any) -> Any:
    return ml_dtypes.bfloat16 if element.to_string() == "bf16" else element.to_dtype()


def _array_of(constant: Any) -> Array:
    """Return a constant's array; integers of less than 8 bits are widened to 8, floats of at most 8 bits to f32."""
    name = constant.get_element_type().to_string()
    if name in _WIDER:
        wide = np.dtype(_WIDER[name])
        made = openvino.Tensor(openvino.Type(wide), constant.get_output_shape(0))
        openvino.opset13.convert(constant, wide).evaluate([made], [constant.get_tensor_view()])
        return np.array(made.data)
    if name == "bf16":
        return np.array(constant.get_data()).view(ml_dtypes.bfloat16)
    return np.array(constant.get_data())


def _dequantize(op: Any, given: list[Any]) -> DequantizedWeights | None:
    """Return the dequantized values of integer weights; None if the operation is another."""
    kind, first = op.get_type_name(), given[0]
    if kind == "FakeQuantize":
        found = find_quantizer(int(op.get_attributes()["levels"]), [_as_array(each) for each in given[1:]])
        return (
            None
            if found is None
            else DequantizedWeights(found.round(_as_array(first)), found.scale, found.zero - found.middle)
        )
    types = [op.get_input_element_type(0).to_string(), op.get_output_element_type(0).to_string()]
    if kind == "Convert" and types[0] in _INTEGERS and types[1] in _FLOATS and first.ndim > 1:
        return DequantizedWeights(first, np.ones((), np.float32), np.zeros((), np.float32))
    if not isinstance(first, DequantizedWeights):
        return None
    if kind == "Convert" and types[1] in _FLOATS:
        return first
    if kind in _MOVES:
        return _move(op, given, first)
    if kind not in ("Multiply", "Subtract"):
        return None
    other = _as_array(given[1])
    if np.broadcast_shapes(other.shape, first.integers.shape) != first.integers.shape:
        return None
    if kind == "Multiply":
        return replace(first, scale=first.scale.astype(np.float32) * other.astype(np.float32))
    return replace(first, zero=other) if (first.scale == 1).all() and not first.zero.any() else None


def _evaluate(op: Any, given: Sequence[Array]) -> list[Array] | None:
    """Return an operation's results for fixed inputs; None if they are known only in a call."""
    outputs = op.outputs()
    types = {each.get_element_type().to_string() for each in outputs}
    if any(each.get_partial_shape().is_dynamic for each in outputs):
        return None
    if op.get_type_name() == "Convert" and types < {*_FLOATS} and given[0].dtype.kind in "fVbiu":
        return [given[0].astype(_dtype_of(outputs[0].get_element_type()))]
    if "bf16" in types or any(each.dtype == ml_dtypes.bfloat16 for each in given):  # OpenVINO makes no arrays of bf16
        return None
    made = [openvino.Tensor(each.get_element_type(), each.get_shape()) for each in outputs]
    try:
        if op.evaluate(made, [openvino.Tensor(np.ascontiguousarray(each).reshape(each.shape)) for each in given]):
            return [np.array(each.data) for each in made]
        return [_compute(each) for each in outputs]
    except RuntimeError:
        return None


def _move(op: Any, given: list[Any], weights: DequantizedWeights) -> DequantizedWeights:
    if op.get_type_name() == "Transpose":
        order = [int(each) for each in given[1]] or None
        return weights.move(lambda each: each.transpose(order))
    shape = tuple(op.get_output_shape(0))
    return weights.move(lambda each: each.reshape(shape))


def _compute(output: Any) -> Array:
    """Return an output that depends on no input, computed by OpenVINO."""
    compiled = openvino.compile_model(openvino.Model([output], []), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.array(compiled({})[0])
