"""Ifs as calls of functions: `outline` makes their branches functions, so that passes see straight-line code.

TVM's dataflow blocks contain no If, and its ConvertLayout generated code for branches that crashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.ir import GlobalVar, TupleType
from tvm.relax.expr_functor import PyExprMutator, mutator

from ...errors import SourceError
from .constants import constant, static_shape
from .mutator import Rebinding

_IF = "tvmconv.if"
_SYMBOL = "global_symbol"


def outline(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module in which each If is a call that names its branches, which are functions of the module.

    Raises
    ------
    SourceError
        If branches return tensors of different shapes or types.
    """
    while (variable := _chooses(mod)) is not None:
        outlining = _Outlining(mod)
        outlining.builder_.update_func(variable, outlining.visit_expr(mod[variable]))
        mod = relax.transform.DeadCodeElimination()(outlining.builder_.get())
    return mod


def _chooses(mod: tvm.IRModule) -> GlobalVar | None:
    """Return a function with an If, a public one if possible; None if there is none. Check the branches of all."""
    found: dict[bool, GlobalVar] = {}
    for variable, function in _functions(mod):
        chosen: list[relax.If] = []
        relax.analysis.post_order_visit(
            function, lambda each, chosen=chosen: chosen.append(each) if isinstance(each, relax.If) else None
        )
        for each in chosen:
            check_branches("an If", [each.true_branch.ty, each.false_branch.ty])
        if chosen:
            found.setdefault(_SYMBOL in (function.attrs or {}), variable)
    return found.get(True, found.get(False))


def inline(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module with :func:`outline` undone."""
    mod = relax.transform.ToNonDataflow()(mod)  # in which there is no If
    for variable, function in _functions(mod):
        choosing = _Choosing(mod)
        choosing.builder_.update_func(variable, choosing.visit_expr(function))
        mod = choosing.builder_.get()
    return relax.transform.ConvertToDataflow(1)(mod)


def branches_of(call: relax.Call) -> tuple[list[str], list[list[Any]]] | None:
    """Return the functions between which an outlined If chooses, and the arguments of each; None for another call."""
    first = call.args[0] if call.args else None
    name = str(first.global_symbol) if isinstance(first, relax.ExternFunc) else ""
    if not name.startswith(_IF):
        return None
    _, count, *names = name.split()
    given = list(call.args[1].fields[1:])
    return names, [given[: int(count)], given[int(count) :]]


def _functions(mod: tvm.IRModule) -> list[tuple[GlobalVar, relax.Function]]:
    return [(variable, each) for variable, each in mod.functions_items() if isinstance(each, relax.Function)]


def check_branches(name: str, types: Sequence[Any]) -> None:
    """Raise SourceError if branches of an If return other than tensors of the same fixed shapes and types; the message begins with `name`."""
    given = [[(static_shape(field), getattr(field, "dtype", None)) for field in fields_of(each)] for each in types]
    if given[0] != given[1] or any(shape is None for shape, _ in given[0]):
        raise SourceError(
            f"{name} returns {types[0]} or {types[1]}; branches of a network must return tensors of the same fixed shapes and types"
        )


def fields_of(type_: Any) -> list[Any]:
    """Return the types of a tuple's fields, or a tensor's type alone."""
    return list(type_.fields) if isinstance(type_, TupleType) else [type_]


@mutator
class _Outlining(PyExprMutator):  # type: ignore[misc]
    def visit_if_(self, choice: relax.If) -> relax.Expr:
        """Return the call that replaces an If."""
        condition = self.visit_expr(choice.cond)
        branches = [self._branch(each) for each in (choice.true_branch, choice.false_branch)]
        name = " ".join((_IF, str(len(branches[0][1])), *(function.name_hint for function, _ in branches)))
        arguments = [condition, *(each for _, given in branches for each in given)]
        made = fields_of(choice.ty)
        return relax.call_dps_packed(name, arguments, made if isinstance(choice.ty, TupleType) else made[0])

    def _branch(self, branch: relax.Expr) -> tuple[GlobalVar, list[Any]]:
        """Return a branch as a function of the module, and its arguments; a branch that only calls a function becomes that function."""
        branch = self.visit_with_new_scope(branch)
        call = branch.body
        if isinstance(call, relax.Var) and len(branch.blocks) == 1 and len(branch.blocks[0].bindings) == 1:
            call = branch.blocks[0].bindings[0].value
        if isinstance(call, relax.Call) and isinstance(call.op, GlobalVar):
            return self._called(call)
        given = list(relax.analysis.free_vars(branch))
        function = relax.utils.copy_with_new_vars(relax.Function(given, branch, branch.ty))
        return self._public(self.builder_.add_func(function, "branch"), function), given

    def _called(self, call: relax.Call) -> tuple[GlobalVar, list[Any]]:
        """Return the function that a branch calls, with constant arguments bound, and the other arguments."""
        function = self.builder_.get()[call.op]
        fixed = {param: arg for param, arg in zip(function.params, call.args, strict=True) if constant(arg) is not None}
        if not fixed:
            return self._public(call.op, function), list(call.args)
        made = relax.utils.copy_with_new_vars(function.bind_params(fixed))
        given = [arg for arg in call.args if constant(arg) is None]
        return self._public(self.builder_.add_func(made.without_attr(_SYMBOL), "branch"), made), given

    def _public(self, variable: GlobalVar, function: relax.Function) -> GlobalVar:
        """Make a function public, so that it stays in the module under its name, which only text refers to."""
        self.builder_.update_func(variable, function.with_attr(_SYMBOL, variable.name_hint))
        return variable


@mutator
class _Choosing(Rebinding):
    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the If of an outlined call."""
        chosen = branches_of(binding.value) if isinstance(binding.value, relax.Call) else None
        if chosen is None:
            return None
        mod = self.builder_.get()
        branches = [
            relax.Call(mod.get_global_var(name), [self.visit_expr(each) for each in given])
            for name, given in zip(*chosen, strict=True)
        ]
        return relax.If(self.visit_expr(binding.value.args[1].fields[0]), *branches)
