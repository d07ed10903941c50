"""`Nodes`: operators inserted into an exported program's graph, with PyTorch's metadata of their results; `Parts` of complex ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._prims_common import is_contiguous_or_false
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.utils._pytree import tree_map_only


def name_of(node: fx.Node) -> str:
    """Return an operator's name."""
    return str(getattr(node.target, "__name__", ""))


class Parts(NamedTuple):
    """The real and the imaginary part of one or several complex tensors, or of a number; None: there is no imaginary part."""

    real: Any
    imaginary: Any


def arguments(node: fx.Node) -> dict[str, Any]:
    """Return the arguments of an operator's call by the names of its schema, with the schema's defaults."""
    given = {each.name: each.default_value for each in node.target._schema.arguments}
    return given | dict(zip(given, node.args, strict=False)) | dict(node.kwargs)


class Nodes:
    """Inserts calls of operators into a program's graph.

    Parameters
    ----------
    program
        The program, decomposed. It is changed in place.

    Attributes
    ----------
    before
        The node before which calls are inserted.
    like
        The node whose position in the model's code they take.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self._program, self._graph = program, program.graph
        values = (node.meta.get("val") for node in self._graph.nodes)
        self._fake = next(value.fake_mode for value in values if isinstance(value, torch.Tensor))
        self.before: fx.Node = next(iter(self._graph.nodes))
        self.like = self.before
        # A copy: the caller's program keeps its own.
        program._constants = dict(program.constants)
        self._known: dict[Any, fx.Node] = {}

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Insert a call of an ATen operator and return it; free extents are read from tensors."""
        args, kwargs = tree_map_only(torch.SymInt, self._extent, (args, kwargs))
        with self._graph.inserting_before(self.before):
            node = self._graph.call_function(target, args, kwargs)
        node.meta = {key: value for key, value in self.like.meta.items() if key in ("nn_module_stack", "stack_trace")}
        given, named = fx.map_arg((args, kwargs), lambda each: each.meta["val"])
        with self._fake:
            node.meta["val"] = target(*given, **named)
        return node

    def constant(self, value: torch.Tensor, key: Any = None) -> fx.Node:
        """Return a node for a fixed tensor; one with a `key` is created once."""
        if key is not None and key in self._known:
            return self._known[key]
        name = f"tvmconv_constant_{len(self._program.constants)}"
        first = next(node for node in self._graph.nodes if node.op == "placeholder")
        with self._graph.inserting_before(first):
            node = self._graph.placeholder(name)
        node.meta["val"] = self._fake.from_tensor(value, static_shapes=True)
        spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name=node.name), name)
        self._program.graph_signature.input_specs.insert(0, spec)
        self._program.constants[name] = value
        if key is not None:
            self._known[key] = node
        return node

    def weight(self, name: str) -> torch.Tensor:
        """Return a parameter, buffer or constant."""
        found = self._program.state_dict.get(name)
        return self._program.constants[name] if found is None else found

    @staticmethod
    def shape(node: fx.Node) -> list[Any]:
        """Return the shape of a node's result: numbers, and PyTorch's symbols of free extents."""
        return list(node.meta["val"].shape)

    def expanded(self, node: fx.Node, shape: Sequence[Any]) -> fx.Node:
        """Return a tensor in a shape that it is broadcast to."""
        return node if _is_shape(node, shape) else self.call(torch.ops.aten.expand.default, node, list(shape))

    def permuted(self, node: fx.Node, order: Sequence[int]) -> fx.Node:
        """Return a tensor with its axes in another order."""
        if list(order) == sorted(order):
            return node
        return self.call(torch.ops.aten.permute.default, node, list(order))

    def viewed(self, node: fx.Node, shape: Sequence[Any]) -> fx.Node:
        """Return a tensor in another shape."""
        if _is_shape(node, shape):
            return node
        if not is_contiguous_or_false(node.meta["val"]):
            node = self.call(torch.ops.aten.clone.default, node, memory_format=torch.contiguous_format)
        return self.call(torch.ops.aten.view.default, node, list(shape))

    def _extent(self, size: torch.SymInt) -> fx.Node:
        """Return a node that reads a free extent from a tensor."""
        for node in self._graph.nodes:
            shape = getattr(node.meta.get("val"), "shape", ())
            axis = next((axis for axis, each in enumerate(shape) if _is_same(each, size)), None)
            if axis is not None:
                break
        with self._graph.inserting_before(self.before):
            made = self._graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
        made.meta["val"] = size
        return made

    def finish(self) -> None:
        """Name the results in the program's signature, and remove unused nodes of its graph."""
        (returned,) = self._graph.output_node().args
        for spec, node in zip(self._program.graph_signature.output_specs, returned, strict=True):
            if isinstance(node, fx.Node) and hasattr(spec.arg, "name"):
                spec.arg.name = node.name
        self._graph.eliminate_dead_code()
        specs = self._program.graph_signature.input_specs
        for node, spec in zip(self._graph.find_nodes(op="placeholder"), list(specs), strict=True):
            value = node.meta.get("val")
            if (
                spec.kind != InputKind.USER_INPUT
                and not node.users
                and isinstance(value, torch.Tensor)
                and value.is_complex()
            ):
                self._graph.erase_node(node)
                specs.remove(spec)
                self._program.constants.pop(spec.target, None)
        self._graph.lint()
        self._program.graph_module.recompile()


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two extents are the same number or expression; PyTorch's own comparison would fix free extents."""
    return one is other or str(one) == str(other)


def _is_shape(node: fx.Node, shape: Sequence[Any]) -> bool:
    found = node.meta["val"].shape
    return len(found) == len(shape) and all(map(_is_same, found, shape))
