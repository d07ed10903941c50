"""Keep track of the model's nodes through the passes, by the names of variables.

A reader names variables after nodes, and the module has a table from these names to the nodes. TVM's passes keep names. A variable that a
pass adds is named as a part of its first reader (`name_new`); the nodes of a removed variable pass to its first reader (`carry`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

Nodes = dict[str, list[str]]
_NODES = "tvmconv.nodes"
# Separator of a variable's name and the number of a part.
_PART = "'"
_MOVES = ("relax.astype", "relax.memory.view", "relax.permute_dims", "relax.reshape")


def nodes_of(mod: tvm.IRModule) -> Nodes:
    """Return the model's nodes by the names of variables; none if they are unknown."""
    text = mod.get_attr(_NODES)
    return {} if text is None else dict(json.loads(str(text))["nodes"])


def with_nodes(mod: tvm.IRModule, names: Mapping[Any, str]) -> tvm.IRModule:
    """Return a reader's module with variables named after nodes; `names` has the nodes of variables or of their values."""
    renamed: dict[Any, str] = {}
    nodes: Nodes = {}
    for _, _, bindings in _graphs(mod):
        for binding in bindings:
            # Items of a tuple belong to the node of the tuple.
            of = binding.value.tuple_value if isinstance(binding.value, relax.TupleGetItem) else binding.value
            name = names.get(binding.var) or names.get(of) or next(iter(nodes.get(renamed.get(of, ""), ())), "")
            if name:
                renamed[binding.var] = f"n{len(nodes)}_{re.sub('[^0-9A-Za-z]+', '_', name)}"
                nodes[renamed[binding.var]] = [name]
    return name_new(_with_table(_rename(mod, renamed), nodes))


def name_new(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose new variables are named as parts of their first reader.

    Where that reader only moves the new variable, they swap names: the new one computes what the reader's name stands for.
    """
    nodes = nodes_of(mod)
    renamed: dict[Any, str] = {}
    for _, _, bindings in _graphs(mod) if nodes else ():
        readers = _Readers(bindings)
        for at in range(len(bindings) - 1, -1, -1):
            variable = bindings[at].var
            if variable.name not in nodes:
                reader = readers.first(at)
                if reader is None:  # The function returns it: it belongs to the last named variable before it.
                    owner = next((each.var.name for each in bindings[at::-1] if each.var.name in nodes), "")
                else:
                    owner = renamed.get(reader.var, reader.var.name)
                part = f"{owner.partition(_PART)[0]}{_PART}{len(nodes)}"
                nodes[part], renamed[variable] = [], part
                if reader is not None and _moves(reader.value):
                    renamed[variable], renamed[reader.var] = owner, part
    return _with_table(_rename(mod, renamed), nodes) if renamed else mod


def carry(before: tvm.IRModule, after: tvm.IRModule) -> tvm.IRModule:
    """Return the module `after` a pass, with the nodes of removed variables assigned to their first readers."""
    nodes = nodes_of(before)
    if not nodes:
        return after
    after = name_new(after)
    nodes = {**nodes_of(after), **nodes}
    read = relax.transform.DeadCodeElimination()(after)
    left = {binding.var.name for _, _, bindings in _graphs(read) for binding in bindings}
    for _, _, bindings in _graphs(before):
        readers = _Readers(bindings)
        for at, binding in enumerate(bindings):
            gone = binding.var.name
            if gone not in left and (reader := readers.first(at)) is not None:
                both = (*nodes.get(gone, ()), *nodes.get(reader.var.name, ()))
                nodes[reader.var.name] = list(dict.fromkeys(both))
    return _with_table(after, nodes)


class _Readers:
    """Search for a binding's first reader, without a graph of all bindings, most of which are not searched for."""

    def __init__(self, bindings: Sequence[Any]) -> None:
        self._bindings = bindings
        self._reads: list[set[Any] | None] = [None] * len(bindings)

    def first(self, at: int) -> Any:
        """Return the first reader of the binding at a place; None: no binding reads it."""
        variable = self._bindings[at].var
        return next((self._bindings[by] for by in range(at + 1, len(self._bindings)) if self._has(by, variable)), None)

    def _has(self, by: int, variable: Any) -> bool:
        found = self._reads[by]
        if found is None:
            found = self._reads[by] = set(_read_by(self._bindings[by].value))
        return variable in found


def of_variable(nodes: Mapping[str, Sequence[str]], name: str) -> tuple[str, ...]:
    """Return the nodes of a variable; for a part without nodes, those of the variable that it is a part of."""
    return tuple(nodes.get(name) or nodes.get(name.partition(_PART)[0], ()))


def _moves(value: Any) -> bool:
    return (
        isinstance(value, (relax.Var, relax.TupleGetItem)) or getattr(getattr(value, "op", None), "name", "") in _MOVES
    )


def carry_fused(before: tvm.IRModule, after: tvm.IRModule) -> tvm.IRModule:
    """Return the module of TVM's FuseOps, where each call of a fused function has the nodes of all its operators.

    FuseOps merges equal functions, so names inside them are ambiguous: bindings are matched by what they call and read.
    """
    nodes = nodes_of(before)
    if not nodes:
        return after
    renamed: dict[Any, str] = {}
    for variable, function, bindings in _graphs(after):
        if _is_joined(function):
            continue
        origin = before[variable.name_hint]
        known = dict(zip(function.params, origin.params, strict=True))
        left: dict[Any, list[Any]] = {}
        for binding in _bindings(origin):
            left.setdefault(_key(binding.value), []).append(binding.var)

        def find(binding: Any, known: dict[Any, Any], left: dict[Any, list[Any]] = left) -> Any:
            found = left.get(_key(binding.value, known))
            known[binding.var] = found.pop(0) if found else None
            return known[binding.var]

        for binding in bindings:
            called = getattr(binding.value, "op", None)
            joined = after[called] if isinstance(called, tvm.ir.GlobalVar) else None
            if joined is None or not _is_joined(joined):
                find(binding, known)
                continue
            inner = {param: known.get(each) for param, each in zip(joined.params, binding.value.args, strict=True)}
            parts = [part for each in _bindings(joined) if (part := find(each, inner)) is not None]
            names = [part.name for part in parts if part.name in nodes]
            known[binding.var] = inner.get(joined.body.body)
            if names:
                renamed[binding.var] = names[-1]
                nodes[names[-1]] = list(dict.fromkeys(node for name in names for node in of_variable(nodes, name)))
    return _with_table(_rename(after, renamed), nodes)


def _is_joined(function: relax.Function) -> bool:
    return "Primitive" in (function.attrs or {})


def _key(value: Any, known: Mapping[Any, Any] | None = None) -> Any:
    """Return a value's operator or functions, and the variables that it reads, mapped by `known` if that is given."""
    read = _read_by(value)
    called = [each.name_hint for each in getattr(value, "args", ()) if isinstance(each, tvm.ir.GlobalVar)]
    name = getattr(getattr(value, "op", None), "name", type(value).__name__)
    return name, *called, *(each for each in (read if known is None else map(known.get, read)) if each is not None)


def _read_by(value: Any) -> list[Any]:
    read: list[Any] = []
    relax.analysis.post_order_visit(value, lambda each: read.append(each) if isinstance(each, relax.Var) else None)
    return read


def _bindings(function: relax.Function) -> list[Any]:
    return [binding for block in function.body.blocks for binding in block.bindings]


def _graphs(mod: tvm.IRModule) -> list[tuple[Any, relax.Function, list[Any]]]:
    return [
        (variable, function, _bindings(function))
        for variable, function in mod.functions_items()
        if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr)
    ]


def _with_table(mod: tvm.IRModule, nodes: Mapping[str, Sequence[str]]) -> tvm.IRModule:
    return mod.with_attr(_NODES, json.dumps({"nodes": nodes}))


def _rename(mod: tvm.IRModule, names: Mapping[Any, str]) -> tvm.IRModule:
    """Return a module with renamed variables."""
    if not names:
        return mod
    for variable, function, bindings in _graphs(mod):
        if any(each.var in names for each in bindings):
            mutator = _Renaming(mod, names)
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
            mod = mutator.builder_.get()
    return mod


@mutator
class _Renaming(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, names: Mapping[Any, str]) -> None:
        super().__init__(mod)
        self._names = names

    def visit_var_def_(self, var: relax.Var) -> relax.Var:
        """Return a variable with its new name."""
        return self._named(var, relax.Var)

    def visit_dataflow_var_def_(self, var: relax.DataflowVar) -> relax.Var:
        """Return a dataflow variable with its new name."""
        return self._named(var, relax.DataflowVar)

    def _named(self, var: relax.Var, kind: type[relax.Var]) -> relax.Var:
        if var not in self._names:
            return var
        made = kind(self._names[var], var.ty)
        self.set_var_remap(var, made)
        return made
