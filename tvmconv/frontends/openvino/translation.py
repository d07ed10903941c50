"""The ONNX model that an IR is translated to: names of tensors, constants, inputs and outputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from onnx import TensorProto, helper

from ..onnx.constants import add_constant
from ..onnx.fake_quantize import DOMAIN
from .fixed import FixedValues

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# The written opset: the first whose GroupNormalization has a scale for each channel.
_OPSET = 21
_TYPES = {
    "bf16": TensorProto.BFLOAT16,
    "boolean": TensorProto.BOOL,
    "f16": TensorProto.FLOAT16,
    "f32": TensorProto.FLOAT,
    "f64": TensorProto.DOUBLE,
    "i8": TensorProto.INT8,
    "i16": TensorProto.INT16,
    "i32": TensorProto.INT32,
    "i64": TensorProto.INT64,
    "u8": TensorProto.UINT8,
    "u16": TensorProto.UINT16,
    "u32": TensorProto.UINT32,
    "u64": TensorProto.UINT64,
}


def onnx_type(element: Any) -> int:
    """Return ONNX's number of OpenVINO's type.

    Raises
    ------
    ValueError
        If networks have no such type; the message continues "the layer ...".
    """
    name = element.to_string()
    if name not in _TYPES:
        raise ValueError(f"has elements of type {name}, which networks do not support")
    return _TYPES[name]


class Translation:
    """An ONNX model under construction, and its values that depend on no input (`fixed`)."""

    def __init__(self, wanted: Sequence[str] = ()) -> None:
        imports = [helper.make_opsetid("", _OPSET), helper.make_opsetid(DOMAIN, 1)]
        self.model: ModelProto = helper.make_model(
            helper.make_graph([], "network", [], []), opset_imports=imports, ir_version=10
        )
        self.fixed = FixedValues()
        self._wanted = set(wanted)
        self._names: dict[tuple[str, int], str] = {}
        self._taken: set[str] = set()
        self._constants: dict[tuple[str, int], str] = {}
        self._nodes: set[str] = set()

    def add_nodes(self, nodes: Iterable[NodeProto]) -> None:
        """Add a layer's nodes; of several with the same name, as of a convolution and its bias, the first keeps it."""
        for node in nodes:
            numbered = (f"{node.name}/{node.op_type}{number or ''}" for number in itertools.count())
            node.name = next(each for each in itertools.chain([node.name], numbered) if each not in self._nodes)
            self._nodes.add(node.name)
            self.model.graph.node.append(node)

    def tensor(self, output: Any) -> str:
        """Return the name of an output's tensor, which is written as a constant if it is fixed."""
        place = output.get_node().get_name(), output.get_index()
        if place not in self._constants and (array := self.fixed.array(output)) is not None:
            self._constants[place] = add_constant(self.model, self.name(output), array)
        return self._constants.get(place) or self.name(output)

    def name(self, output: Any) -> str:
        """Return the name of an output's tensor: the requested one, the model's, or the layer's."""
        node = output.get_node()
        place = node.get_name(), output.get_index()
        if place not in self._names:
            own = names_of(output)
            name = next((each for each in own if each in self._wanted), own[0])
            while name in self._taken:
                name += "_"
            self._taken.add(name)
            self._names[place] = name
        return self._names[place]

    def add_input(self, output: Any, extents: Sequence[int | str] | None) -> None:
        """Write an input of the model; errors are those of :meth:`add`."""
        made = helper.make_tensor_value_info(self.name(output), onnx_type(output.get_element_type()), extents)
        self.model.graph.input.append(made)

    def add_any_input(self, output: Any, extents: Sequence[int | str] | None) -> None:
        """Write an input, which may be of a type that networks lack, and of any rank."""
        elem_type = _TYPES.get(output.get_element_type().to_string(), TensorProto.UNDEFINED)
        self.model.graph.input.append(helper.make_tensor_value_info(self.name(output), elem_type, extents))

    def leave(self, op: Any) -> None:
        """Write a layer as OpenVINO's own operator, with its outputs' types and shapes where known."""
        given = [self.name(each) for each in op.input_values() if self.fixed.of(each) is None]
        names, kind = [self.name(each) for each in op.outputs()], op.get_type_name()
        self.model.graph.node.append(helper.make_node(kind, given, names, op.get_friendly_name(), domain=DOMAIN))
        for name, output in zip(names, op.outputs(), strict=True):
            shape, elem_type = output.get_partial_shape(), _TYPES.get(output.get_element_type().to_string())
            if elem_type is not None and shape.rank.is_static:
                dims = [each.get_length() if each.is_static else None for each in shape]
                self.model.graph.value_info.append(helper.make_tensor_value_info(name, elem_type, dims))

    def add_output(self, output: Any) -> None:
        """Write an output of the model, named like its tensor unless an input or another output has that name."""
        graph, tensor = self.model.graph, self.tensor(output.get_node().input_value(0))
        names = names_of(output)
        name = next((each for each in names if each in self._wanted), names[0])
        given = {each.name for each in (*graph.input, *graph.initializer, *graph.output)}
        if name != tensor or name in given:
            name = next((each for each in names if each not in self._taken), f"{tensor}/{len(graph.output)}")
            graph.node.append(helper.make_node("Identity", [tensor], [name]))
            self._taken.add(name)
        elem_type = onnx_type(output.get_element_type())
        graph.output.append(helper.make_tensor_value_info(name, elem_type, None))


def names_of(output: Any) -> list[str]:
    """Return the names of an output: its tensor's, then its layer's, numbered if there are several outputs.

    A tensor that has its layer's name, as an input that others were folded into, has that first.
    """
    node = output.get_node()
    layer = node.get_friendly_name()
    own = [output.get_any_name(), *sorted(output.get_names())] if output.get_names() else []
    if layer in own:
        return [layer, *own]
    return [*own, layer if node.get_output_size() == 1 else f"{layer}:{output.get_index()}"]
