"""`export`: a Relax module with our kernels as one library that runs by a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call

from ..checks import as_path
from ..errors import SourceError
from ..exporting.network_part import NetworkPart
from ..lowering.common.rewrites import found
from ..support.progress import Progress
from ..support.toolchain import find_compiler
from ..targets.target import CpuTarget
from ..tuning.records import Records
from .emit.library import part, write
from .emit.memory_plan import COPY, NetworkPlan, plan
from .emit.prefetch_filters import prefetch_next
from .kernels.build import WORKSPACE
from .kernels.replace import Row
from .lower import check_target, described, scheduled, tvm_errors
from .passes import report, use_kernels
from .virtual_machine import MAIN

_PACKED = ("tirx.tvm_call_packed", "tirx.tvm_call_cpacked", "tirx.tvm_call_packed_lowered")


def export(
    module: tvm.IRModule,
    path: str | os.PathLike[str],
    target: str = "host",
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write what :func:`tvmconv.relax.use_kernels` returned for the same target as one library, which is replaced whole.

    It needs tvm-ffi alone: :func:`tvmconv.load_network` calls it, whose description has `facts` as ``"caller"``.

    Raises
    ------
    SourceError
        If an input or output of its function ``main`` has no fixed shape; or it does what a plan cannot: decide by its numbers,
        or call TVM's runtime.
    TargetError
        If `target` is no CPU.
    BuildError
        If TVM cannot compile it.
    ToolchainError
        If there is no C compiler, or it fails.
    """
    path = as_path("path", path)
    planned, functions, description, known = _planned(module, target)
    with tvm_errors():
        write(planned, functions, description | {"caller": dict(facts or {})}, known, path)


def export_part(module: tvm.IRModule, target: str = "host") -> NetworkPart:
    """Return the same for another library to take in, such as a provider for onnxruntime. The errors are the same, too."""
    planned, functions, description, known = _planned(module, target)
    with tvm_errors():
        return part(planned, functions, description, known)


def _planned(
    module: tvm.IRModule, target: str
) -> tuple[NetworkPlan, dict[str, tirx.PrimFunc], dict[str, Any], CpuTarget]:
    """Return the plan, the functions that it calls, and what a network's library says of itself."""
    known = check_target(target)
    find_compiler(known.isa)
    report(module)  # or say that there is none
    with tvm_errors():
        lowered = scheduled(module, known, planned=True)
        kernels = {each.name_hint: lowered[each].attrs for each in lowered.get_global_vars() if each.name_hint != MAIN}
        planned = plan(lowered[MAIN], {name: int(attrs.get(WORKSPACE, 0)) for name, attrs in kernels.items() if attrs})
        functions = {name: lowered[name] for name in {step.function for step in planned.steps} - {COPY}}
        _check(functions)
        planned.steps, functions = prefetch_next(planned, functions, known)
        return planned, functions, described(module, known), known


def _check(functions: dict[str, tirx.PrimFunc]) -> None:
    for name, function in functions.items():
        called: list[Any] = [each for each in found(function.body, Call) if getattr(each.op, "name", "") in _PACKED]
        if called:
            raise SourceError(
                f"the network's {name} calls TVM's runtime ({called[0].args[0]}), which its library is to do without; TVM's"
                " virtual machine runs it (tvmconv compile --format relax)"
            )


def build(
    module: tvm.IRModule,
    path: str | os.PathLike[str],
    target: str = "host",
    records: Records | None = None,
    layout: str | None = None,
    math: str = "default",
    progress: Progress | None = None,
    memory: str = "default",
    facts: Mapping[str, Any] | None = None,
    trials: int = 0,
    seconds: float | None = None,
) -> list[Row]:
    """Compile a Relax module, its convolutions by our kernels, to one library; return what became of each convolution.

    Parameters and errors are those of :class:`tvmconv.relax.UseKernels` and :func:`export`.
    """
    check_target(target)
    with tvm_errors():
        module = use_kernels(
            module, target, records, layout, math, progress, memory=memory, trials=trials, seconds=seconds
        )
    export(module, path, target, facts)
    return report(module)
