"""Writer of nodes and constants that replace a node of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper

from .constants import add_constant
from .graph import OURS
from .weights import array_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = npt.NDArray[Any]


class NodeWriter:
    """Writer of the nodes that replace another; names of tensors begin with the node's first output.

    Attributes
    ----------
    nodes
        The nodes written so far.
    dtype
        Type of the node's inputs.
    opset
        The model's version of ONNX' operators.
    """

    def __init__(self, node: NodeProto, model: ModelProto, elem_type: int = TensorProto.FLOAT) -> None:
        self.nodes: list[NodeProto] = []
        self._prefix = next(name for name in node.output if name)
        self._node, self._model = node, model
        self.dtype = np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
        self.opset = next(each.version for each in model.opset_import if each.domain in OURS)

    def op(self, kind: str, *inputs: str | Array, **attributes: Any) -> str:
        """Write a node, and the constants among its inputs; return the name of its output."""
        name = f"{self._prefix}_{len(self.nodes)}"
        taken = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        self.nodes.append(helper.make_node(kind, taken, [name], **attributes))
        return name

    def reduce(self, kind: str, data: str, axes: Array) -> str:
        """Write a reduction that keeps its axes, which are an input since opset 18."""
        if self.opset < 18:
            return self.op(kind, data, axes=axes.tolist())
        return self.op(kind, data, axes)

    def constant(self, array: Array) -> str:
        """Write a constant; return its name."""
        return add_constant(self._model, f"{self._prefix}_constant{len(self._model.graph.initializer)}", array)

    def fixed(self, place: int) -> Array | None:
        """Return a constant input of the node; None: the node has no such input.

        Raises
        ------
        ValueError
            If it is not constant; the message continues "the node ...".
        """
        name = self._node.input[place] if place < len(self._node.input) else ""
        if not name:
            return None
        for each in self._model.graph.initializer:
            if each.name == name:
                return array_of(each)
        raise ValueError(f"takes {name!r}, which is not constant")

    def number(self, place: int, default: int | None = None) -> int:
        """Return a constant input of one number; errors are those of :meth:`fixed`."""
        array = self.fixed(place)
        if array is not None:
            return int(array.item())
        if default is None:
            raise ValueError(f"lacks its input {place}")
        return default

    def finish(self, *names: str) -> list[NodeProto]:
        """Return the nodes, with the named tensors as the node's outputs."""
        for name, output in zip(names, self._node.output, strict=True):
            self.nodes.append(helper.make_node("Identity", [name], [output]))
        return self.nodes


def shape_array(*sizes: int) -> npt.NDArray[np.int64]:
    """Return sizes, or axes, as ONNX's operators take them."""
    return np.array(sizes, np.int64)
