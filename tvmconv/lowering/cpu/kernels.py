"""Lower a problem's schedule to the functions of a CPU kernel's library, and write the library."""

from __future__ import annotations

import os
from typing import Any

import tvm

from ...algorithms.definition import Definition
from ...algorithms.table import get
from ...problem import Problem
from ...runtime.kernel_object import KernelObject
from ...support.timing import stage
from ...targets.target import CpuTarget, Target
from ..code_generator import Written
from ..common.entry_points import SYMBOL, EntryPoints
from ..compiler import Choice, has_own_prepacked, plain_choice, schedule
from .functions import functions_of
from .linker import link
from .lowering import Lowered, lower, workspace_bytes
from .packing import unsplit
from .passes import ALLOCATED, PIPELINE
from .rewrites.next_filter import prefetch_following
from .workspaces import allocate, workspaces


def write(
    problem: Problem,
    target: CpuTarget,
    choice: Choice,
    entry_points: EntryPoints,
    path: str | os.PathLike[str],
    apart: bool,
    next_lines: int,
) -> Written:
    """Write a kernel's library; its object is kept in the library or, if `apart`, returned."""
    with stage("lower"):
        lowered = lower_choice(problem, target, choice, entry_points)
        functions = lowered.module
        if next_lines:
            functions = tvm.IRModule(prefetch_following(functions_of(functions), next_lines))
        allocated = allocate(functions, target.tvm())
    llvm = target.tvm(keep_zeros=get(choice.algorithm).ordered)
    # In a network, only the executor calls kernels, with correct arguments.
    with stage("LLVM"), tvm.transform.PassContext(config={"tirx.disable_assert": apart}):
        executable = tvm.compile(allocated, llvm, tir_pipeline=ALLOCATED)
    sizes = workspaces(allocated)
    content = link(executable, path, None if apart else sizes, target.isa)
    layout = lowered.layout.described() if lowered.layout else None
    code = KernelObject(content, sizes) if apart else None
    return Written(layout, workspace_bytes(lowered.module), lowered.module, code)


def lower_choice(
    problem: Problem, target: Target, choice: Choice, entry_points: EntryPoints = EntryPoints.BOTH
) -> Lowered:
    """Return the functions of a CPU kernel's library before LLVM; `entry_points` as in :func:`compile_problem`."""
    if entry_points is EntryPoints.BOTH and (other := plain_choice(problem, target, choice)) != choice:
        definition, scheduled = schedule(problem, target, choice, EntryPoints.PACKED)
        packed = lower(scheduled.mod, definition, EntryPoints.PACKED)
        return packed if packed.layout is None else _join(_in_place(problem, target, other), packed)
    definition, scheduled = schedule(problem, target, choice, _first(entry_points))
    lowered = lower(scheduled.mod, definition)
    if entry_points is EntryPoints.BOTH and lowered.layout is None:
        return _with_packed(lowered, problem, target, choice)
    return lowered


def _first(entry_points: EntryPoints) -> EntryPoints:
    """Return the entry point whose definition is lowered first: the one for plain filters may pack them, too."""
    return entry_points & EntryPoints.PLAIN or EntryPoints.PACKED


def generate(module: tvm.IRModule, target: Target) -> Any:
    """Return the ``tvm.runtime.Executable`` of a CPU kernel's lowered functions, which holds LLVM IR."""
    return tvm.compile(module, target.tvm(), tir_pipeline=PIPELINE)


def module(scheduled: tvm.IRModule, definition: Definition, target: CpuTarget) -> Any:
    """Return a runtime module; its function ``main`` takes the operands and the output."""
    function = functions_of(lower(scheduled, definition, EntryPoints.PLAIN).module)[SYMBOL]
    return generate(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), target).mod


def _in_place(problem: Problem, target: Target, choice: Choice) -> Lowered:
    """Return the kernel for plain filters only, as one function."""
    definition, scheduled = schedule(problem, target, choice)
    return lower(tvm.IRModule({"main": unsplit(scheduled.mod["main"])}), definition)


def _with_packed(plain: Lowered, problem: Problem, target: Target, choice: Choice) -> Lowered:
    """Return a kernel that reads plain filters in place together with the algorithm's own definition for prepacked ones, if there is one."""
    if not has_own_prepacked(choice.algorithm, problem, target):
        return plain
    definition, scheduled = schedule(problem, target, choice, EntryPoints.PACKED)
    return _join(plain, lower(scheduled.mod, definition))


def _join(plain: Lowered, packed: Lowered) -> Lowered:
    """Return the functions of both, with SYMBOL from the first."""
    return Lowered(tvm.IRModule({**functions_of(packed.module), **functions_of(plain.module)}), packed.layout)
