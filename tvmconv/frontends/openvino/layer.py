"""A layer of an IR, and the ONNX nodes that are written for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from ..onnx.writer import NodeWriter
from .fixed import DequantizedWeights
from .translation import Translation, onnx_type

Array = npt.NDArray[Any]
# OpenVINO's ONNX reader splits a convolution's bias off, and ends the convolution's name so.
_SPLIT = "/WithoutBiases"
# Extents; None: free.
Extents = tuple[int | None, ...]


def extents_of(shape: Any) -> Extents:
    """Return the extents of OpenVINO's shape.

    Raises
    ------
    ValueError
        If the rank is unknown; the message continues "the layer ...".
    """
    if shape.rank.is_dynamic:
        raise ValueError("has a tensor of unknown rank; export the model with ranks")
    return tuple(each.get_length() if each.is_static else None for each in shape)


class IrLayer(NodeWriter):
    """Writer of the nodes that replace a layer; its ValueErrors continue "the layer ...".

    Attributes
    ----------
    kind
        The operation's name, such as ``"MaxPool"``.
    version
        The operation set of its version, such as ``"opset8"``.
    given
        Its attributes.
    """

    def __init__(self, op: Any, translation: Translation, outputs: list[str]) -> None:
        self._op, self._translation = op, translation
        self.kind: str = op.get_type_name()
        self.version: str = op.get_type_info().version_id
        self.given: dict[str, Any] = op.get_attributes()
        first = op.get_input_element_type(0) if op.get_input_size() else op.get_output_element_type(0)
        node = helper.make_node(self.kind, [], outputs)
        super().__init__(node, translation.model, onnx_type(first))
        self._prefix = f"{outputs[0]}/{self.kind}"
        self.name = str(op.get_friendly_name()).removesuffix(_SPLIT)
        self.outputs = outputs

    @property
    def count(self) -> int:
        """Return how many inputs it has."""
        return int(self._op.get_input_size())

    def op(self, kind: str, *inputs: str | Array, **attributes: Any) -> str:
        """Write a node, and the constants among its inputs; return the name of its output."""
        number = f"/{len(self.nodes)}" if self.nodes else ""
        return super().op(kind, *inputs, name=f"{self.name}{number}", **attributes)

    def split(self, kind: str, count: int, *inputs: str | Array, **attributes: Any) -> list[str]:
        """Write a node of several outputs; return their names."""
        first = self.op(kind, *inputs, **attributes)
        names = [first, *(f"{first}.{at}" for at in range(1, count))]
        self.nodes[-1].output.extend(names[1:])
        return names

    def input(self, place: int) -> str:
        """Return the name of an input's tensor, which is written as a constant if it is fixed."""
        return self._translation.tensor(self._op.input_value(place))

    def inputs(self) -> list[str]:
        """Return the names of all inputs."""
        return [self.input(place) for place in range(self.count)]

    def integers(self, place: int) -> str | Array:
        """Return an input of integers as int64, ONNX's type of sizes, axes and indices."""
        array = self._array(place)
        if array is not None:
            return array.astype(np.int64)
        name = self.input(place)
        return name if self.dtype_of(place) == np.int64 else self.op("Cast", name, to=TensorProto.INT64)

    def _array(self, place: int) -> Array | None:
        return self._translation.fixed.array(self._op.input_value(place))

    def is_fixed(self, place: int) -> bool:
        """Return whether an input is fixed."""
        return self._translation.fixed.of(self._op.input_value(place)) is not None

    def fixed(self, place: int) -> Array | None:
        """Return an input's fixed numbers; None: there is no such input."""
        if place >= self.count:
            return None
        array = self._array(place)
        if array is None:
            raise ValueError(f"takes {self.input(place)!r}, which is not fixed")
        return array

    def numbers(self, place: int, default: list[int] | None = None) -> list[int]:
        """Return an input's fixed whole numbers; errors are those of :meth:`fixed`."""
        array = self.fixed(place)
        if array is None:
            if default is None:
                raise ValueError(f"lacks its input {place}")
            return default
        return [int(each) for each in array.reshape(-1)]

    def axes(self, place: int, default: list[int] | None = None) -> list[int]:
        """Return an input's fixed axes, made non-negative; errors are those of :meth:`fixed`."""
        return [axis % max(self.rank(), 1) for axis in self.numbers(place, default)]

    def weights(self, place: int, change: Callable[[Array], Array]) -> str:
        """Write a fixed input after a move, dequantized integers with DequantizeLinear; return its name."""
        value = self._translation.fixed.of(self._op.input_value(place))
        assert value is not None
        moved = value.move(change) if isinstance(value, DequantizedWeights) else change(value)
        if isinstance(moved, DequantizedWeights):
            if not (known := np.isfinite(moved.scale)).all():
                raise ValueError(f"has a weight scale of {moved.scale[~known].flat[0]}: scales are positive and finite")
            if (line := moved.find_line()) is not None:
                axis, scale, zero = line
                return self.op(
                    "DequantizeLinear", moved.integers, scale, zero, **({} if axis is None else {"axis": axis})
                )
            moved = moved.array.astype(self.dtype_of(place))
        return self.constant(moved)

    def shape(self, place: int = 0) -> Extents:
        """Return the extents of an input."""
        return extents_of(self._op.get_input_partial_shape(place))

    def static(self, place: int = 0) -> tuple[int, ...]:
        """Return the extents of an input; ValueError if one is free."""
        return _fix(self.shape(place))

    def out_shape(self, place: int = 0) -> Extents:
        """Return the extents of an output."""
        return extents_of(self._op.get_output_partial_shape(place))

    def out_static(self) -> tuple[int, ...]:
        """Return the extents of an output; errors are those of :meth:`static`."""
        return _fix(self.out_shape())

    def rank(self, place: int = 0) -> int:
        """Return the number of axes of an input."""
        return len(self.shape(place))

    def dtype_of(self, place: int) -> np.dtype[Any]:
        """Return the type of an input."""
        element = self._op.get_input_element_type(place)
        return np.dtype(helper.tensor_dtype_to_np_dtype(onnx_type(element)))

    def out_type(self, place: int = 0) -> int:
        """Return ONNX's number of the type of an output."""
        return onnx_type(self._op.get_output_element_type(place))

    def cast(self, name: str, place: int = 0) -> str:
        """Write a cast of a tensor to an output's type; return its name."""
        return self.op("Cast", name, to=self.out_type(place))

    def number_of(self, value: float) -> Array:
        """Return a number in the type of the first input."""
        return np.array(value, self.dtype)

    def is_read(self, place: int) -> bool:
        """Return whether something reads an output."""
        return bool(self._op.output(place).get_target_inputs())

    def end(self, names: list[str]) -> None:
        """Rename the tensors `names` to the layer's outputs."""
        read = {each for node in self.nodes for each in node.input}
        made = {each for node in self.nodes for each in node.output}
        for name, output in zip(names, self.outputs, strict=False):
            if not name:
                continue
            if name not in made or name in read or names.count(name) > 1:
                self.nodes.append(helper.make_node("Identity", [name], [output], name=f"{self.name}/{len(self.nodes)}"))
                continue
            for node in self.nodes:
                for at, each in enumerate(node.output):
                    node.output[at] = output if each == name else each


def _fix(extents: Extents) -> tuple[int, ...]:
    fixed = tuple(each for each in extents if each is not None)
    if len(fixed) < len(extents):
        raise ValueError("needs fixed extents; give them as numbers (--shape NAME=1x3x224x224)")
    return fixed
