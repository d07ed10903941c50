"""Modules whose Relax functions a mutator of TVM's writes anew, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax


def each_function(
    mod: tvm.IRModule, mutator_of: Callable[[tvm.IRModule, relax.Function], Any], with_bindings: bool = False
) -> tvm.IRModule:
    """Return a module with what a mutator makes of each Relax function, or of each that has bindings.

    Parameters
    ----------
    mutator_of
        Makes the mutator of the new module and a function.
    with_bindings
        Leave functions alone whose body is a single expression, which are no graph.
    """
    mod = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function) and (not with_bindings or isinstance(function.body, relax.SeqExpr)):
            mod.update_func(variable, mutator_of(mod, function).visit_expr(function))
    return mod


def tidied(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module without variables that are bound to others, and without what nothing reads."""
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(passes)(mod)
