"""`export`: write a Relax module with our kernels as one library, which executes a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call

from ..building.fallbacks import start_ahead
from ..checks import as_path
from ..exporting.network_part import NetworkPart
from ..lowering.common.rewrites import find_all
from ..support.timing import stage
from ..support.toolchain import find_compiler
from ..targets.target import CpuTarget
from .emit.library import Planned, part, prepare_executor, write
from .emit.memory_plan import needs_runtime, plan
from .emit.network_plan import OWN
from .emit.prefetch_filters import prefetch_next
from .free_operators import check_operators
from .ir.extents import has_extents
from .ir.graph import MAIN
from .ir.nodes import nodes_of
from .kernels.build import WORKSPACE
from .kernels.replace import ConvolutionRow
from .lower import describe, schedule_functions, tvm_errors
from .options import check_target
from .passes import use_kernels
from .report import notes_of, report

_PACKED = ("tirx.tvm_call_packed", "tirx.tvm_call_cpacked", "tirx.tvm_call_packed_lowered")


def export(
    module: tvm.IRModule,
    path: str | os.PathLike[str],
    target: str = "host",
    facts: Mapping[str, Any] | None = None,
    sizes: Sequence[tvm.IRModule] = (),
) -> None:
    """Write a module from :func:`tvmconv.relax.use_kernels` for the same target as one library, replaced atomically.

    The library needs only tvm-ffi; :func:`tvmconv.load_network` loads it. Its description has `facts` as ``"caller"``. `sizes` are modules
    of the same network at some of its sizes, where its inputs have free extents.

    Raises
    ------
    SourceError
        If an input or output of the function ``main`` has no fixed shape, or the module calls TVM's runtime.
    TargetError
        If `target` is no CPU.
    BuildError
        If TVM cannot compile the module.
    ToolchainError
        If there is no C compiler, or it fails.
    """
    path = as_path("path", path)
    known = check_target(target)
    planned, *named = (_plan(each, known) for each in (module, *sizes))
    with tvm_errors():
        write(replace(planned, description={**planned.description, "caller": dict(facts or {})}), known, path, named)


def export_part(module: tvm.IRModule, target: str = "host") -> NetworkPart:
    """Return a network as an object for another library, such as a provider for onnxruntime; errors are those of :func:`export`."""
    known = check_target(target)
    planned = _plan(module, known)
    with tvm_errors():
        return part(planned, known)


def export_parts(module: tvm.IRModule, target: str) -> dict[str, NetworkPart]:
    """Return parts for a target and for CPUs of its instruction set with more features, most features first; they share plan and weights."""
    known = check_target(target)
    planned = _plan(module, known)
    names = [name for name, has in known.isa.models.items() if set(known.features) <= set(has)]
    with tvm_errors():
        parts = {}
        for each in map(check_target, reversed(names)):
            described = {**planned.description, "target": each.name, "features": list(each.features)}
            parts[each.name] = part(replace(planned, description=described), each)
        return parts


def prepare(target: str) -> None:
    """Compile the parts shared by all networks for a target, in a thread."""
    prepare_executor(check_target(target).isa)


def prepare_workers() -> AbstractContextManager[None]:
    """Start the processes that compile kernels while the context does something else, such as reading a model."""
    return start_ahead()


def _plan(module: tvm.IRModule, known: CpuTarget) -> Planned:
    """Return a network's plan, the plan's functions, and the library's description."""
    find_compiler(known.isa)
    rows = report(module)  # raises if there is no report
    if has_extents(module):
        check_operators(module, rows)
    description = describe(module, known)
    with tvm_errors():
        with stage("lower"):
            lowered = schedule_functions(module, known, notes_of(module)["math"])
        every = {variable.name_hint: function for variable, function in lowered.functions_items()}
        graphs = {name: function for name, function in every.items() if isinstance(function, relax.Function)}
        kernels = {name: function.attrs for name, function in every.items() if name not in graphs}
        workspaces = {name: int(attrs.get(WORKSPACE, 0)) for name, attrs in kernels.items() if attrs}
        planned = plan(graphs, MAIN, workspaces, nodes_of(lowered))
        called = dict.fromkeys(
            step.function for step in planned.steps
        )  # not a set, whose order differs between processes
        functions = {name: lowered[name] for name in called if name not in OWN}
        _check(functions)
        planned.steps, functions = prefetch_next(planned, functions, known)
        return Planned(planned, functions, description)


def _check(functions: dict[str, tirx.PrimFunc]) -> None:
    for name, function in functions.items():
        called: list[Any] = [each for each in find_all(function.body, Call) if getattr(each.op, "name", "") in _PACKED]
        if called:
            raise needs_runtime(f"{name}, a call of {called[0].args[0]}")


def build(
    module: tvm.IRModule,
    path: str | os.PathLike[str],
    target: str = "host",
    facts: Mapping[str, Any] | None = None,
    sizes: Sequence[tvm.IRModule] = (),
    **options: Any,
) -> list[ConvolutionRow]:
    """Compile a Relax module, its convolutions by our kernels, to one library; return a row for each convolution.

    Parameters and errors are those of :class:`tvmconv.network.options.Options` and :func:`export`.
    """
    prepare(target)
    with tvm_errors():
        module, *named = (use_kernels(each, target, **options) for each in (module, *sizes))
    export(module, path, target, facts, named)
    return report(module)
