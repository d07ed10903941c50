"""ONNX models: every Conv and ConvTranspose node, with the shapes that ONNX's own inference finds."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InvalidProblemError, SourceError, missing_extra
from ..problem import DTYPES, Problem
from .onnx_rules import OP_TYPES, node_problem

try:
    import onnx
    import onnx.inliner
    import onnx.shape_inference
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
except ImportError:
    raise missing_extra("onnx", "onnx") from None

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto

_DTYPES = {onnx.TensorProto.FLOAT: "f32", onnx.TensorProto.FLOAT16: "f16", onnx.TensorProto.BFLOAT16: "bf16"}
_TYPE_NAMES = {number: name.lower() for name, number in onnx.TensorProto.DataType.items()}


class _Value(NamedTuple):
    """Type and shape of a tensor; a free dimension is its name (empty when it has none)."""

    elem_type: int
    shape: tuple[int | str, ...] | None


class _UnknownShapeError(SourceError):
    """The inference found no shape for a convolution."""


def read_onnx(content: bytes, source: str, batch: int | None, dtype: str | None) -> Iterator[tuple[str, Problem]]:
    """Yield each convolution of a model with the name of its node.

    Parameters
    ----------
    content
        The bytes of the model; weights kept in other files are not needed.
    source
        Its name, for messages.
    batch
        The size of its free batch dimension, which is dimension 0 of its inputs.
    dtype
        Stands in for a type that no kernel has; the types of the problems themselves stay the model's.

    Raises
    ------
    SourceError
        If it is no model, or a node's shapes are unknown or make no valid convolution.
    """
    model = _load(content, source)
    if batch is not None:
        _set_batch(model, batch, source)
    try:
        graph = _infer(model, source).graph
        yield from _Reader(source, dtype, graph).read(graph, ChainMap())
    except _UnknownShapeError:
        # Inference passes over what it fails on unless it is strict, and then says why it fails.
        _infer(model, source, strict=True)
        raise


class _Reader:
    """Walks the graphs of one model whose shapes are inferred."""

    def __init__(self, source: str, dtype: str | None, graph: GraphProto) -> None:
        self._source = source
        self._dtype = dtype
        self._free = [
            f"{value.name}[{axis}]" + (f" ({dim})" if dim else "")
            for value in _inputs(graph)
            for axis, dim in enumerate(_value(value.type).shape or ())
            if isinstance(dim, str)
        ]
        self._used = frozenset(_used_names(graph))

    def read(self, graph: GraphProto, outer: ChainMap[str, _Value]) -> Iterator[tuple[str, Problem]]:
        """Yield the convolutions of a graph and of the graphs inside its nodes."""
        scope = outer.new_child(_values(graph))
        for node in graph.node:
            if node.op_type in OP_TYPES and node.domain in ("", "ai.onnx"):
                if len(node.input) < 2 or not node.output:
                    raise SourceError(
                        f"{self._source}: {node.op_type} node {node.name!r} lacks its inputs or its output"
                    )
                name = node.name or node.output[0]
                yield name, self._problem(node, scope, f"{self._source}: {node.op_type} node {name!r}")
            for inner in _subgraphs(node):
                yield from self.read(inner, scope)

    def _problem(self, node: NodeProto, scope: ChainMap[str, _Value], where: str) -> Problem:
        data_shape = self._shape("data", node.input[0], scope, where)
        filter_shape = self._shape("filter", node.input[1], scope, where)
        bias_shape = None
        if len(node.input) > 2 and node.input[2]:
            bias_shape = self._shape("bias", node.input[2], scope, where)
        attributes = {a.name: _plain(onnx.helper.get_attribute_value(a)) for a in node.attribute}
        types = {scope[name].elem_type for name in node.input[:3] if name}
        try:
            problem = node_problem(
                node.op_type, attributes, data_shape, filter_shape, bias_shape, self._type(types, where)
            )
        except InvalidProblemError as error:
            raise SourceError(f"{where}: {error}") from error
        output = scope.get(node.output[0])
        inferred = output.shape if output else None
        if inferred and len(inferred) == len(problem.output_shape) and node.output[0] in self._used:
            # Then shapes after this node would be of another model than the one that runs.
            for given, right in zip(inferred, problem.output_shape, strict=True):
                if isinstance(given, int) and given != right:
                    raise SourceError(
                        f"{where}: ONNX infers the output shape {list(inferred)}, but its attributes give "
                        f"{list(problem.output_shape)}, and other nodes read it; write explicit pads instead of auto_pad"
                    )
        return problem

    def _type(self, types: set[int], where: str) -> str:
        if types <= _DTYPES.keys() and len(types) == 1:
            return _DTYPES[types.pop()]
        if self._dtype is not None:
            return self._dtype
        names = " and ".join(sorted(_TYPE_NAMES.get(t, f"type {t}") for t in types))
        raise SourceError(
            f"{where} computes in {names}; kernels are built for one of float, float16 and bfloat16: "
            f"choose one with --dtype ({', '.join(DTYPES)})"
        )

    def _shape(self, role: str, name: str, scope: ChainMap[str, _Value], where: str) -> list[int]:
        value = scope.get(name)
        if value is None or value.shape is None:
            raise _UnknownShapeError(
                f"{where}: ONNX's shape inference finds no shape for its {role} {name!r}{self._hint()}"
            )
        known = [dim for dim in value.shape if isinstance(dim, int)]
        if len(known) == len(value.shape):
            return known
        shown = ", ".join(str(dim) if isinstance(dim, int) else "?" for dim in value.shape)
        raise _UnknownShapeError(f"{where}: its {role} {name!r} has the unknown extents [{shown}]{self._hint()}")

    def _hint(self) -> str:
        if not self._free:
            return "; declare it in the model (an entry of graph.value_info)"
        return (
            f". The model leaves free: {', '.join(self._free)}. Kernels are built for exact shapes: give a free batch "
            "(dimension 0) with --batch N, and fix other dimensions in the model, for example with "
            "onnx.tools.update_model_dims"
        )


def _load(content: bytes, source: str) -> ModelProto:
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError as error:
        raise SourceError(f"{source} is not an ONNX model, or is truncated: {error}") from None
    if not model.opset_import or not model.HasField("graph"):
        raise SourceError(f"{source} is not an ONNX model: it has no {'graph' if model.opset_import else 'opset'}")
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _set_batch(model: ModelProto, batch: int, source: str) -> None:
    free = [
        value.type.tensor_type.shape.dim[0]
        for value in _inputs(model.graph)
        if (shape := _value(value.type).shape) and isinstance(shape[0], str)
    ]
    names = sorted({dim.dim_param for dim in free})
    if not free:
        raise SourceError(f"{source}: batch {batch} was given, but no input of the model has a free dimension 0")
    if len(names) > 1:
        raise SourceError(
            f"{source}: batch {batch} was given, but dimension 0 is not the same in all inputs: {', '.join(names)}; "
            "fix all but the batch in the model, for example with onnx.tools.update_model_dims"
        )
    for dim in free:
        dim.dim_value = batch


def _infer(model: ModelProto, source: str, strict: bool = False) -> ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=strict, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise SourceError(f"{source}: ONNX's shape inference fails: {error}") from error


def _inputs(graph: GraphProto) -> list[ValueInfoProto]:
    """Return the inputs that a caller gives; old models list their weights among them."""
    weights = {weight.name for weight in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def _values(graph: GraphProto) -> dict[str, _Value]:
    values = {value.name: _value(value.type) for value in (*graph.output, *graph.value_info, *graph.input)}
    for weight in graph.initializer:
        values[weight.name] = _Value(weight.data_type, tuple(weight.dims))
    for sparse in graph.sparse_initializer:
        values[sparse.values.name] = _Value(sparse.values.data_type, tuple(sparse.dims))
    return values


def _value(type_: TypeProto) -> _Value:
    tensor = type_.tensor_type
    if not tensor.HasField("shape"):
        return _Value(tensor.elem_type, None)
    dims = (dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim)
    return _Value(tensor.elem_type, tuple(dims))


def _subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _used_names(graph: GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        for inner in _subgraphs(node):
            yield from _used_names(inner)


def _plain(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
