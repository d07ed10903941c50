"""The stages of a CPU kernel after its schedule, as text: functions after passes, LLVM IR, machine code."""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.tirx.transform import BindTarget

from ...algorithms.definition import Definition
from ...problem import Problem
from ...targets.target import CpuTarget, Target
from ..common.entry_points import EntryPoints
from ..compiler import Choice, plain_choice, schedule
from ..stages import of_definitions
from .kernels import generate, lower_choice
from .lowering import lower
from .passes import GENERATION, LOWERING, PASSES, generation, requests


def show(stage: str, problem: Problem, target: CpuTarget, choice: Choice) -> str:
    """Return a stage of a CPU kernel as text."""
    if stage in {each.name for each in LOWERING}:
        return of_definitions(problem, target, choice, lambda *scheduled: _after_pass(stage, *scheduled))
    if stage == "passes":
        return _passes(problem, target, choice)
    module = lower_choice(problem, target, choice).module
    if stage == "tir":
        return str(module.script())
    if stage in {each.name for each in GENERATION}:
        return str(generation(stage)(BindTarget(target.tvm().with_host(target.tvm()))(module)).script())
    executable = generate(module, target)
    if stage == "llvm":
        return str(executable.mod.inspect_source("ll"))
    return target.isa.listing(executable.mod.inspect_source("asm"))


def _after_pass(last: str, definition: Definition, schedule: Schedule) -> str:
    """Return the functions after a pass of LOWERING."""
    return str(lower(schedule.mod, definition, last=last).module.script())


def _passes(problem: Problem, target: Target, choice: Choice) -> str:
    """Return the list of passes, with ``*`` before those that the kernel requests."""
    ways = ((plain_choice(problem, target, choice), EntryPoints.PLAIN), (choice, EntryPoints.PACKED))
    functions = (schedule(problem, target, each, entry_points)[1].mod["main"] for each, entry_points in ways)
    asked = frozenset().union(*map(requests, functions))
    lines = []
    for each in PASSES:
        mark = " " if each.asked and asked.isdisjoint(each.asked) else "*"
        lines.append(f"{mark} {each.name:<40}{', '.join(each.asked) or 'every kernel'}")
        lines += [f"      after {before}: {why}" for before, why in each.after.items()]
    return "\n".join(lines)
