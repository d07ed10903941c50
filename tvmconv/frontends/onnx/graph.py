"""ONNX models as graphs: their inputs, the types and shapes of their tensors, and their convolutions in order."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...dtypes import FLOATS, ROWS
from ...errors import missing_extra
from ..shapes import Dims, Input
from .rules import OP_TYPES

try:
    import onnx
except ImportError:
    raise missing_extra("onnx", "onnx") from None

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

DTYPES = {ROWS[name].onnx: name for name in FLOATS}
TYPE_NAMES = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}
# Convolutions without kernels.
OTHER_OP_TYPES = {
    **dict.fromkeys(
        ("ConvInteger", "QLinearConv"),
        "it computes in integers, as tvmconv compile does; bundles of models are of f32, f16 or bf16",
    ),
    "DeformConv": "each of its taps reads where another tensor says; kernels read at fixed distances",
}
# The domains of ONNX's own operators.
OURS = ("", "ai.onnx")
# Names that some exporters give to every free dimension.
_NO_NAMES = ("?", "None", "unk", "unknown")


class Value(NamedTuple):
    """Type and shape of a tensor; a free dimension is its name (empty when it has none)."""

    elem_type: int
    shape: Dims | None


@dataclass(frozen=True)
class Place:
    """A convolution in a model.

    Parameters
    ----------
    number
        Its index in :func:`convolutions`.
    name
        Its unique name.
    node
        The node.
    scope
        Types and shapes of tensors by name, those of outer graphs included.
    graphs
        The graphs that contain it, the innermost last.
    inside
        The nodes, for example ``If``, whose graphs contain it, the innermost last.
    """

    number: int
    name: str
    node: NodeProto
    scope: ChainMap[str, Value]
    graphs: tuple[GraphProto, ...]
    inside: tuple[NodeProto, ...]

    def __str__(self) -> str:
        return f"{self.node.op_type} node {self.name!r}"


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node, with bytes decoded to text."""
    values = ((each.name, onnx.helper.get_attribute_value(each)) for each in node.attribute)
    return {name: value.decode(errors="replace") if isinstance(value, bytes) else value for name, value in values}


def inputs_of(graph: GraphProto) -> list[ValueInfoProto]:
    """Return the inputs of callers; old models list their weights among the graph's inputs."""
    weights = {weight.name for weight in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def declared_inputs(graph: GraphProto) -> list[Input]:
    """Return the inputs as the model declares them: -1, 0, a name or nothing is a free dimension."""

    def free(dim: int | str) -> int | str:
        if isinstance(dim, int):
            return dim if dim > 0 else ""
        return "" if dim in _NO_NAMES else dim

    return [
        Input(value.name, dims and tuple(map(free, dims)))
        for value, dims in ((each, value_of(each.type).shape) for each in inputs_of(graph))
    ]


def with_inputs(model: ModelProto, bound: dict[str, Dims | None]) -> ModelProto:
    """Return a copy of a model with these dimensions of inputs, and without declared output shapes that contradict them."""
    copy: ModelProto = type(model)()
    copy.CopyFrom(model)
    changed = False
    for value in inputs_of(copy.graph):
        dims = bound[value.name]
        if dims is None or dims == value_of(value.type).shape:
            continue
        changed = True
        shape = value.type.tensor_type.shape
        shape.Clear()
        for dim in dims:
            shape.dim.add(**({"dim_value": dim} if isinstance(dim, int) else {"dim_param": dim}))
        value.type.tensor_type.shape.CopyFrom(shape)  # present even without dimensions
    if changed:
        for value in (*copy.graph.output, *copy.graph.value_info):
            value.type.tensor_type.ClearField("shape")
    return copy


def convolutions(model: ModelProto) -> list[Place]:
    """Return the convolutions of a model and of the graphs inside its nodes, in order."""
    found = list(_walk(model.graph, ChainMap(), (), ()))
    names = Counter(_name(node) for node, *_ in found)
    seen: Counter[str] = Counter()
    places = []
    for number, (node, scope, graphs, inside) in enumerate(found):
        name = _name(node)
        if names[name] > 1:
            seen[name] += 1
            name = f"{name}#{seen[name]}"
        places.append(Place(number, name, node, scope, graphs, inside))
    return places


def _name(node: NodeProto) -> str:
    return node.name or (node.output[0] if node.output else "")


def _walk(
    graph: GraphProto, outer: ChainMap[str, Value], graphs: tuple[GraphProto, ...], inside: tuple[NodeProto, ...]
) -> Iterator[tuple[NodeProto, ChainMap[str, Value], tuple[GraphProto, ...], tuple[NodeProto, ...]]]:
    scope, graphs = outer.new_child(values_of(graph)), (*graphs, graph)
    for node in graph.node:
        if is_convolution(node) or is_other_convolution(node):
            yield node, scope, graphs, inside
        for inner in subgraphs(node):
            yield from _walk(inner, scope, graphs, (*inside, node))


def is_convolution(node: NodeProto) -> bool:
    """Return whether kernels compute a node."""
    return node.op_type in OP_TYPES and node.domain in OURS


def is_other_convolution(node: NodeProto) -> bool:
    """Return whether a node is a convolution without kernels."""
    return node.op_type in OTHER_OP_TYPES and node.domain in (*OURS, "com.microsoft")


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def used_names(graph: GraphProto) -> Iterator[str]:
    """Yield the names of the tensors that nodes read."""
    for node in graph.node:
        yield from used_names_of(node)


def used_names_of(node: NodeProto) -> Iterator[str]:
    """Yield the names of the tensors that a node and the nodes in its graphs read."""
    yield from node.input
    for inner in subgraphs(node):
        yield from used_names(inner)
        yield from (value.name for value in inner.output)


def keep_used(graph: GraphProto, names: Iterable[str]) -> set[str]:
    """Remove nodes that the named tensors do not need; return these names, and those that the remaining nodes read."""
    read, nodes = set(names), []
    for node in reversed(graph.node):  # in topological order, as ONNX demands
        if read.intersection(node.output):
            read.update(used_names_of(node))
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(reversed(nodes))
    return read


def sizes_of(node: NodeProto, shape: Sequence[Any] | None) -> np.ndarray | None:
    """Return the result of a Shape or a Size for a tensor's shape; None if it is unknown, or for another node."""
    if node.op_type not in ("Shape", "Size") or shape is None or not all(isinstance(dim, int) for dim in shape):
        return None
    if node.op_type == "Size":
        return np.array(prod(shape), np.int64)
    return np.array(shape[start_end(node)], np.int64)


def start_end(node: NodeProto) -> slice:
    """Return the slice of its input's extents that a Shape returns."""
    bounds = {each.name: each.i for each in node.attribute}
    return slice(bounds.get("start", 0), bounds.get("end"))


def values_of(graph: GraphProto) -> dict[str, Value]:
    """Return the types and shapes of the tensors that a graph declares."""
    values = {value.name: value_of(value.type) for value in (*graph.output, *graph.value_info, *graph.input)}
    for weight in graph.initializer:
        values[weight.name] = Value(weight.data_type, tuple(weight.dims))
    for sparse in graph.sparse_initializer:
        values[sparse.values.name] = Value(sparse.values.data_type, tuple(sparse.dims))
    return values


def value_of(type_: TypeProto) -> Value:
    """Return the declared type and shape of a tensor."""
    tensor = type_.tensor_type
    if not tensor.HasField("shape"):
        return Value(tensor.elem_type, None)
    dims = (dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim)
    return Value(tensor.elem_type, tuple("" if isinstance(dim, int) and dim < 0 else dim for dim in dims))
