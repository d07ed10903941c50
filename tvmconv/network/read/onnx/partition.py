"""Partition an ONNX model into networks: one, or the largest parts between unsupported nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto

from ....errors import LackingOperatorsError, SourceError, last_line
from ....frontends.onnx.graph import Value, used_names_of, values_of
from ....frontends.onnx.session import open_session
from ....frontends.shapes import Bucket, Dims
from .expand_functions import types_of
from .free import Free
from .reader import MICROSOFT, as_relax, fix_shapes, is_foreign, simplify

if TYPE_CHECKING:
    import tvm
    from onnx import ModelProto, NodeProto

# Operators outside of parts: nodes with subgraphs, which have no identity (identity.c), or outputs whose shapes depend on data.
_DECIDING = {"If", "Loop", "Scan", "Compress", "NonMaxSuppression", "NonZero", "Unique"}
# The most rounds of cutting: one for operators that the frontend names, one for nodes that cannot be read alone, and some to spare.
_MOST_ROUNDS = 8
# The most elements of a constant that is a shape, axes or a scale rather than a weight.
_SMALL = 16
# Operators that dominate the time of networks. A part without them is not worth a node, which waits for all of its inputs.
_WORTHWHILE = {"Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "RNN", "GRU", "LSTM", "Attention", *MICROSOFT}
_WORTHWHILE |= {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
_TYPES = {
    "tensor(float)": TensorProto.FLOAT,
    "tensor(float16)": TensorProto.FLOAT16,
    "tensor(bfloat16)": TensorProto.BFLOAT16,
    "tensor(double)": TensorProto.DOUBLE,
    "tensor(bool)": TensorProto.BOOL,
    **{
        f"tensor({sign}int{bits})": getattr(TensorProto, f"{sign}int{bits}".upper())
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}


@dataclass(frozen=True)
class ModelPart:
    """A part of a model as a Relax module, and the names of its inputs and outputs, none for the whole model."""

    module: tvm.IRModule
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def read_parts(source: str, bucket: Bucket | None = None, free: Free | None = None) -> list[ModelPart]:
    """Return a model as one network, or its largest parts between unsupported operators.

    Parts contain convolutions or products. Each is as large as possible without mutual dependences: the first has all nodes that depend
    on no unsupported operator, the next those that depend on such operators after the first part only, and so on.

    Parameters
    ----------
    source, bucket
        As for :func:`tvmconv.network.read.onnx.reader.read_onnx`, with the same errors; a SourceError, too, if there is no such part.
    free
        The extents of inputs with free ones, as :func:`tvmconv.network.read.onnx.free.free_dims` returns them. Nodes that depend on
        unsupported operators are then in no part, as the extents of a network depend on those of the model's inputs.
    """
    simple = simplify(fix_shapes(source, bucket, inline=False, free=free), source)
    lacking: list[str] = sorted(_DECIDING.intersection(node.op_type for node in simple.graph.node))
    if not lacking:
        try:
            whole: ModelProto = type(simple)()
            whole.CopyFrom(simple)
            return [ModelPart(as_relax(whole, source, free))]
        except LackingOperatorsError as error:
            lacking = sorted(error.names)
        except SourceError as error:
            refusal = error
    cut = _Cut(simple, source, free or {})
    found = cut.parts()
    if found:
        return found
    if not lacking:
        raise refusal
    raise SourceError(
        f"{source}: networks do not support {', '.join(lacking)}, and no part without them has a convolution or product"
    )


class _Cut:
    """A model cut at unsupported nodes."""

    def __init__(self, model: ModelProto, source: str, free: Free) -> None:
        self._model, self._source, self._free = model, source, free
        self._nodes: Sequence[NodeProto] = list(model.graph.node)
        self._values: Mapping[str, Value] = _values(model, source)
        self._constants = {each.name: each for each in model.graph.initializer}
        self._writers = {name: number for number, node in enumerate(self._nodes) for name in node.output if name}
        self._readable: dict[tuple[object, ...], bool] = {}
        self._lacking = {number for number, node in enumerate(self._nodes) if not self._is_plain(node)}

    def parts(self) -> list[ModelPart]:
        """Return the readable parts; each round excludes all nodes that cannot be read alone."""
        read: dict[tuple[int, ...], list[ModelPart]] = {}
        groups: list[tuple[int, ...]] = []
        for _ in range(_MOST_ROUNDS):
            groups, refused = list(self._groups()), set()
            for nodes in groups:
                if nodes not in read:
                    read[nodes], lacking = self._read(nodes)
                    refused |= lacking
            if not refused:
                break
            self._lacking |= refused
        return [part for nodes in groups for part in read[nodes]]

    def _read(self, nodes: tuple[int, ...]) -> tuple[list[ModelPart], set[int]]:
        """Return nodes as a part, or the refused ones among them; if no single node is refused, the connected groups that can be read."""
        try:
            return [self._part(nodes)], set()
        except SourceError as error:
            # Names may be of operators from which the frontend or ONNX's definitions build a node, instead of the model's.
            names = error.names if isinstance(error, LackingOperatorsError) else ()
        named = {number for number, node in enumerate(self._nodes) if node.op_type in names} - self._lacking
        if refused := named or {number for number in nodes if not self._free and not self._is_readable(number)}:
            return [], refused
        components = self._components(nodes)
        if len(components) == 1:
            return [], set()
        return [part for each in components for part in self._read(tuple(each))[0]], set()

    def _is_plain(self, node: NodeProto) -> bool:
        """Return whether a node is an ONNX operator on tensors of known shapes."""
        names = [name for name in (*node.input, *node.output) if name]
        return (
            node.op_type not in _DECIDING
            and not is_foreign(node)
            and not any(each.HasField("g") or each.graphs for each in node.attribute)
            and all(name in self._values and self._is_plain_value(self._values[name]) for name in names)
        )

    def _groups(self) -> Iterator[tuple[int, ...]]:
        """Yield the numbers of each part's nodes.

        A node's level is the greatest number of changes from unsupported nodes to others on a path to it, so the nodes on which a
        part depends have lower levels, or are unsupported and have no higher one.
        """
        levels: list[int] = []
        for number, node in enumerate(self._nodes):
            before = {self._writers[name] for name in used_names_of(node) if name in self._writers}
            rises = number not in self._lacking
            levels.append(max((levels[each] + (rises and each in self._lacking) for each in before), default=0))
        for level in [0] if self._free else sorted(set(levels)):
            nodes = [each for each, its in enumerate(levels) if its == level and each not in self._lacking]
            worth = [
                each
                for each in self._components(nodes)
                if any(self._nodes[number].op_type in _WORTHWHILE for number in each)
            ]
            if worth:
                yield tuple(sorted(number for each in worth for number in each))

    def _components(self, nodes: Sequence[int]) -> list[list[int]]:
        """Return the connected components of nodes."""
        leaders = {each: each for each in nodes}

        def leader(node: int) -> int:
            while leaders[node] != node:
                leaders[node] = leaders[leaders[node]]
                node = leaders[node]
            return node

        for each in nodes:
            for name in self._nodes[each].input:
                if self._writers.get(name) in leaders:
                    leaders[leader(self._writers[name])] = leader(each)
        components: dict[int, list[int]] = {}
        for each in nodes:
            components.setdefault(leader(each), []).append(each)
        return list(components.values())

    def _is_readable(self, number: int) -> bool:
        """Return whether a node can be read by itself; of nodes that differ in weights only, one is tried."""
        node = self._nodes[number]
        ends = tuple((self._values[name], self._number(name)) for name in (*node.input, *node.output) if name)
        key = (node.op_type, str(node.attribute), ends)
        if key not in self._readable:
            try:
                self._part((number,))
                self._readable[key] = True
            except SourceError:
                self._readable[key] = False
        return self._readable[key]

    def _number(self, name: str) -> bytes | None:
        """Return the bytes of a small constant, which distinguish nodes, and none for a large one; None for other tensors."""
        if name not in self._constants:
            return None
        constant = self._constants[name]
        return onnx.numpy_helper.to_array(constant).tobytes() if prod(constant.dims) <= _SMALL else b""

    def _part(self, numbers: Collection[int]) -> ModelPart:
        within = set(numbers)
        nodes = [self._nodes[each] for each in numbers]
        computed = {name for node in nodes for name in node.output if name}
        read = {name: None for node in nodes for name in node.input if name and name not in computed}
        elsewhere = {each.name for each in self._model.graph.output}
        for number, node in enumerate(self._nodes):
            if number not in within:
                elsewhere.update(used_names_of(node))
        inputs = [name for name in read if name not in self._constants]
        outputs = [name for node in nodes for name in node.output if name and name in elsewhere]
        graph = onnx.helper.make_graph(
            nodes,
            self._model.graph.name,
            [_declare(name, self._values[name]) for name in inputs],
            [_declare(name, Value(self._values[name].elem_type, self._shape(name))) for name in outputs],
            [self._constants[name] for name in read if name in self._constants],
        )
        model = onnx.helper.make_model(graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version)
        free = {name: self._free[name] for name in inputs if name in self._free}
        return ModelPart(as_relax(model, self._source, free), tuple(inputs), tuple(outputs))

    def _shape(self, name: str) -> Dims | None:
        """Return the shape with which an output is declared; None with free extents, which the reader infers."""
        return None if self._free else self._values[name].shape

    def _is_plain_value(self, value: Value) -> bool:
        return value.elem_type in _TYPES.values() and (
            bool(self._free)
            or (value.shape is not None and all(isinstance(size, int) and size > 0 for size in value.shape))
        )


def _values(model: ModelProto, source: str) -> dict[str, Value]:
    """Return the types and shapes of tensors as onnxruntime infers them, without sparse constants, which parts do not support."""
    shown = type(model)()
    shown.CopyFrom(model)
    known = {each.name for each in shown.graph.output}
    computed = dict.fromkeys(name for node in shown.graph.node for name in node.output if name)
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in computed if name not in known)
    try:
        session = open_session(shown, "ORT_DISABLE_ALL")
    except Exception as error:  # its own have no other class
        raise SourceError(f"{source}: onnxruntime cannot infer its inner shapes: {last_line(error)}") from error
    ends = (*model.graph.input, *model.graph.initializer)
    values = {name: its for name, its in values_of(model.graph).items() if name in {each.name for each in ends}}
    ranked = {name for name, each in types_of(model).items() if each.tensor_type.HasField("shape")}
    for each in session.get_outputs():
        # onnxruntime reports an empty shape for scalars and for unknown shapes.
        shape = tuple(each.shape) if each.shape or each.name in ranked else None
        values[each.name] = Value(_TYPES.get(each.type, 0), shape)
    return values


def _declare(name: str, value: Value) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, value.elem_type, value.shape)
