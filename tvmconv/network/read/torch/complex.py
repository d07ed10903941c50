"""Programs of `torch.export` without complex numbers: each complex tensor becomes two real ones, its parts.

Unknown operators on complex tensors stay, between ``complex`` and ``view_as_real``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from ....frontends.torch.nodes import Nodes, Parts, arguments, name_of
from .complex_rules import OF_REAL, RULES

aten = torch.ops.aten
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def without_complex(program: ExportedProgram) -> ExportedProgram:
    """Return a decomposed program with pairs of real tensors instead of complex ones; it is changed in place."""
    nodes = [node for node in program.graph.nodes if node.op in ("call_function", "placeholder")]
    if any(map(is_complex, nodes)):
        _Rewriting(program).rewrite()
    return program


def is_complex(node: Any) -> bool:
    """Return whether a node's result is or contains a complex tensor."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return any(isinstance(each, torch.Tensor) and each.is_complex() for each in pytree.tree_leaves(value))


class _Rewriting:
    def __init__(self, program: ExportedProgram) -> None:
        self._program, self._graph = program, program.graph
        self._nodes = Nodes(program)
        self._parts: dict[fx.Node, Parts] = {}
        self._whole: dict[fx.Node, fx.Node] = {}
        # Parts by their stacks, the results of ``view_as_real``.
        self._pairs: dict[fx.Node, Parts] = {}

    def rewrite(self) -> None:
        """Rewrite the program's graph."""
        replaced = []
        for node in list(self._graph.nodes):
            if node.op == "placeholder":
                self._weight(node)
            elif node.op == "output":
                self._at(node)
                node.args = self._given_whole(node.args)
            elif node.op == "call_function" and any(map(is_complex, (node, *node.all_input_nodes))):
                self._at(node)
                if self._ruled(node):
                    replaced.append(node)
                else:
                    self._whole[node] = node
                    node.args, node.kwargs = self._given_whole(node.args), self._given_whole(node.kwargs)
            elif name_of(node) == "select.int" and (part := self._part_read(node)) is not None:
                node.replace_all_uses_with(part)
                replaced.append(node)
        for node in reversed(replaced):
            if not node.users:
                self._graph.erase_node(node)
        self._nodes.finish()

    def _at(self, node: fx.Node) -> None:
        self._nodes.before, self._nodes.like = node, node

    def _ruled(self, node: fx.Node) -> bool:
        """Replace a complex operator by real ones; return whether that is possible."""
        name = name_of(node)
        given = arguments(node) if hasattr(node.target, "_schema") else {}
        if name in _EACH or node.target is operator.getitem:
            made: Any = self._each(node)
        elif name in RULES and not any(isinstance(each, torch.dtype) for each in given.values()):
            args = {key: self._as_parts(value) if key in _TENSORS else value for key, value in given.items()}
            if name not in OF_REAL:
                args = {
                    key: self._filled(value) if isinstance(value, Parts) and is_complex(given[key]) else value
                    for key, value in args.items()
                }
            if is_complex(node):
                real = _REAL[node.meta["val"].dtype]
                args = {
                    key: self._of_type(each, real) if isinstance(each, Parts) else each for key, each in args.items()
                }
            made = RULES[name](self._nodes, **args)
            if name == "view_as_real.default":
                self._pairs[made] = args["self"]
        elif name == "_to_copy.default":
            made = self._converted(node, given)
        elif name in _FILLS and is_complex(node):
            value, shape = complex(given.get("fill_value", 0)), list(node.meta["val"].shape)
            dtype = _REAL[node.meta["val"].dtype]
            made = Parts(
                *(self._nodes.call(aten.full.default, shape, part, dtype=dtype) for part in (value.real, value.imag))
            )
        else:
            return False
        if isinstance(made, Parts):
            self._parts[node] = made
        elif made is None:
            return False
        else:
            node.replace_all_uses_with(made)
        return True

    def _each(self, node: fx.Node) -> Parts | None:
        """Return an operator applied to each part; None if it needs both."""
        if not is_complex(node):
            return None
        tensors = [each for each in node.all_input_nodes if isinstance(each.meta.get("val"), torch.Tensor)]
        same = node.args[0] if isinstance(node.args[0], (list, tuple)) else [node.args[0]]
        if not all(map(is_complex, same)) or (name_of(node) in _ALIKE and not all(map(is_complex, tensors))):
            return None
        if node.target is operator.getitem and node.args[0] not in self._parts:
            return None
        parts = {each: self._parts_of(each) for each in node.all_input_nodes if is_complex(each)}
        is_real = all(each.imaginary is None for each in parts.values())
        parts = parts if is_real else {each: self._filled(part) for each, part in parts.items()}
        halves: list[Any] = [None, None]
        for part in (0,) if is_real else (0, 1):
            args, kwargs = fx.map_arg(
                (node.args, node.kwargs), lambda each, part=part: parts[each][part] if each in parts else each
            )
            kwargs = {
                key: _REAL.get(value, value) if isinstance(value, torch.dtype) else value
                for key, value in kwargs.items()
            }
            halves[part] = self._nodes.call(node.target, *args, **kwargs)
        return Parts(*halves)

    def _filled(self, parts: Parts) -> Parts:
        """Return parts with zeros for a missing imaginary part."""
        if parts.imaginary is not None:
            return parts
        return Parts(parts.real, self._nodes.call(aten.zeros_like.default, parts.real))

    def _part_read(self, node: fx.Node) -> Any:
        """Return the part of a complex tensor that a node selects from ``view_as_real``; None for other nodes."""
        pair, axis, index = node.args
        if pair not in self._pairs or axis not in (-1, pair.meta["val"].dim() - 1):
            return None
        return self._pairs[pair][index]

    def _converted(self, node: fx.Node, given: Mapping[str, Any]) -> Any:
        """Return a type conversion to, from or between complex types."""
        dtype = node.meta["val"].dtype
        real = _REAL.get(dtype, dtype)
        parts = self._as_parts(given["self"])
        made = self._nodes.call(aten._to_copy.default, parts.real, dtype=real)
        if not dtype.is_complex:
            return made
        if parts.imaginary is None:
            return Parts(made, None)
        return Parts(made, self._nodes.call(aten._to_copy.default, parts.imaginary, dtype=real))

    def _of_type(self, parts: Parts, dtype: torch.dtype) -> Parts:
        """Return parts in the type of the result's parts: bf16 times a complex number is computed in f32."""
        to = self._nodes.call
        return Parts(
            *(
                to(aten._to_copy.default, part, dtype=dtype)
                if isinstance(part, fx.Node) and part.meta["val"].dtype != dtype
                else part
                for part in parts
            )
        )

    def _as_parts(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self._parts_of(value) if is_complex(value) else Parts(value, None)
        if isinstance(value, complex):
            return Parts(value.real, value.imag)
        return Parts(value, None)

    def _parts_of(self, node: fx.Node) -> Parts:
        """Return the parts of a complex node, selected from its result if the node stays complex."""
        if node not in self._parts:
            pair = self._nodes.call(aten.view_as_real.default, node)
            self._parts[node] = Parts(*(self._nodes.call(aten.select.int, pair, -1, part) for part in (0, 1)))
        return self._parts[node]

    def _given_whole(self, given: Any) -> Any:
        """Return arguments with complex tensors in place of their parts."""
        return fx.map_arg(
            given, lambda each: self._made_whole(each) if each in self._parts and is_complex(each) else each
        )

    def _made_whole(self, node: fx.Node) -> fx.Node:
        if not isinstance(node.meta["val"], torch.Tensor) or node.op == "placeholder":
            return node
        if node not in self._whole:
            self._whole[node] = self._nodes.call(aten.complex.default, *self._filled(self._parts[node]))
        return self._whole[node]

    def _weight(self, node: fx.Node) -> None:
        """Replace a complex weight of the program by constants of its parts."""
        signature = self._program.graph_signature
        spec = next(each for each in signature.input_specs if each.arg.name == node.name)
        if spec.kind == InputKind.USER_INPUT or not is_complex(node):
            return
        value = self._nodes.weight(spec.target)
        self._nodes.before, self._nodes.like = (
            next(each for each in self._graph.nodes if each.op != "placeholder"),
            node,
        )
        self._parts[node] = Parts(
            *(
                self._nodes.constant(part.contiguous())
                for part in torch.view_as_real(value.detach().resolve_conj()).unbind(-1)
            )
        )


# Arguments that are tensors.
_TENSORS = ("self", "other", "mat2", "vec", "tensor", "real", "imag", "abs", "angle", "src")
# Operators that apply to each part: moves, and sums of elements.
_EACH = {
    "alias.default", "cat.default", "clone.default", "constant_pad_nd.default", "detach.default", "diagonal.default",
    "expand.default", "flip.default", "gather.default", "index.Tensor", "index_select.default", "mean.default", "mean.dim",
    "neg.default", "permute.default", "repeat.default", "roll.default", "select.int", "select_scatter.default", "slice.Tensor",
    "slice_scatter.default", "split_with_sizes.default", "split.Tensor", "squeeze.default", "squeeze.dim", "squeeze.dims",
    "stack.default", "sum.default", "sum.dim_IntList", "t.default", "transpose.int", "unbind.int", "unfold.default",
    "unsqueeze.default", "view.default", "_unsafe_view.default", "reshape.default",
}  # fmt: skip
# Fills with one number everywhere.
_FILLS = {"empty_like.default", "full.default", "full_like.default", "new_zeros.default", "zeros_like.default"}
# Operators whose source and destination must both be complex.
_ALIKE = {"select_scatter.default", "slice_scatter.default"}
