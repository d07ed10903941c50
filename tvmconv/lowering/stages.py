"""The stages of one kernel on its way from formulas to machine code, each as text.

The stages are those of `compile_problem`, which writes the library: what is shown is what ships.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..algorithms import table as algorithms
from ..errors import TvmconvError
from ..problem import Problem
from ..signature import format_signature
from ..targets.cuda import CudaTarget
from ..targets.target import CpuTarget, Target
from .common.entry_points import EntryPoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.s_tir import Schedule

    from ..algorithms.definition import Definition
    from .compiler import Choice

# What each stage is. This module is imported to list them, so the compiler only where one is shown.
STAGES = {
    "te": "the tensor expressions, as the function that is scheduled",
    "schedule": "the steps of the schedule, and what was chosen",
    "passes": "the passes over its loops, in order: who asks for each, and what must have run before (CPUs)",
    "tir": "the loops after all rewrites",
    "llvm": "LLVM IR (CPUs)",
    "asm": "machine code, the hot loop first (CPUs)",
    "cuda": "CUDA C++ (GPUs)",
    "sass": "machine code (GPUs)",
}
_OF_KIND = {
    "cpu": ("te", "schedule", "passes", "tir", "llvm", "asm"),
    "cuda": ("te", "schedule", "tir", "cuda", "sass"),
}


def show(stage: str, problem: Problem, target: Target, choice: Choice) -> str:
    """Return a stage of the kernel that `choice` makes of a problem.

    Parameters
    ----------
    stage
        One of STAGES, or the name of a pass for CPUs: the functions after it.

    Raises
    ------
    TvmconvError
        If there is no such stage, or not for this kind of target; if the algorithm does not cover the problem, or has
        no such sketch.
    RewriteError
        If a rewrite that the schedule asks for cannot be done.
    ToolchainError
        If nvcc, or what shows a GPU's machine code, is missing or fails.
    """
    check_stage(stage, target)
    check_algorithm(choice.algorithm, problem, target)
    return _SHOWN[target.kind](stage, problem, target, choice)


def check_stage(stage: str, target: Target) -> None:
    """Raise TvmconvError if `stage` is none of those that lead to a kernel for `target`."""
    allowed = _OF_KIND[target.kind]
    if stage in allowed:
        return
    from .cpu.passes import PASSES

    passes = [each.name for each in PASSES]
    if stage in passes and target.kind == "cpu":
        return
    raise TvmconvError(
        f"stage is {stage!r}, which {target.name} does not have; allowed for it: {', '.join(allowed)}"
        if stage in STAGES or stage in passes
        else f"stage is {stage!r}; allowed: {', '.join(STAGES)}, or for CPUs one of the passes {', '.join(passes)}"
    )


def check_algorithm(name: str, problem: Problem, target: Target) -> None:
    """Raise TvmconvError, with the reason, if an algorithm is none for the problem on the target."""
    algorithm = algorithms.get(name)
    reason = (
        f"it is for targets of the kind {algorithm.kind}"
        if algorithm.kind != target.kind
        else algorithm.covers(problem, target)
    )
    if reason:
        others = ", ".join(each.name for each in algorithms.applicable(problem, target, "tf32"))
        raise TvmconvError(
            f"{name} does not compute {format_signature(problem)} for {target.name}: {reason}; these do: {others}"
        )


def _cpu(stage: str, problem: Problem, target: Target, choice: Choice) -> str:
    from tvm.tirx.transform import BindTarget

    from .compiler import generate, lower_choice
    from .cpu.passes import GENERATION, LOWERING, generation

    if stage in ("te", "schedule"):
        return _scheduled(stage, problem, target, choice)
    if stage in {each.name for each in LOWERING}:
        return _of_definitions(problem, target, choice, lambda *scheduled: _lowered(stage, *scheduled))
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
    asm = executable.mod.inspect_source("asm")
    assert isinstance(target, CpuTarget)
    return target.isa.listing(asm)


def _cuda(stage: str, problem: Problem, target: CudaTarget, choice: Choice) -> str:
    from .compiler import schedule
    from .cuda.lowering import lower_cuda, to_source
    from .cuda.nvcc import compile_fatbin
    from .cuda.sass import disassemble
    from .cuda.wgmma import scheduled_tile

    if stage in ("te", "schedule"):
        return _scheduled(stage, problem, target, choice)
    definition, scheduled = schedule(problem, target, choice)
    if stage == "tir":
        if scheduled_tile(scheduled.mod, problem, target) is not None:
            raise TvmconvError(
                f"{choice.algorithm} has no stage tir: its kernel is CUDA C++ of our own; see --stage cuda"
            )
        return str(lower_cuda(scheduled.mod, definition, target).script())
    source = to_source(scheduled.mod, definition, target).source
    return source if stage == "cuda" else disassemble(compile_fatbin(source, target))


# By the kind of target.
_SHOWN: dict[str, Callable[..., str]] = {"cpu": _cpu, "cuda": _cuda}


def _scheduled(stage: str, problem: Problem, target: Target, choice: Choice) -> str:
    """Return the stages before lowering."""
    from .schedule_text import schedule_text

    def text(definition: Definition, schedule: Schedule) -> str:
        return str(definition.func.script()) if stage == "te" else schedule_text(definition, schedule)

    return _of_definitions(problem, target, choice, text)


def _lowered(last: str, definition: Definition, schedule: Schedule) -> str:
    """Return the functions after a pass of LOWERING."""
    from .cpu.lowering import lower

    return str(lower(schedule.mod, definition, last=last).module.script())


def _passes(problem: Problem, target: Target, choice: Choice) -> str:
    """Return the list of passes, those marked by ``*`` that the kernel's schedules or definitions ask for."""
    from .compiler import plain_choice, schedule
    from .cpu.passes import PASSES, requests

    ways = ((plain_choice(problem, target, choice), EntryPoints.PLAIN), (choice, EntryPoints.PACKED))
    functions = (schedule(problem, target, each, entry_points)[1].mod["main"] for each, entry_points in ways)
    asked = frozenset().union(*map(requests, functions))
    lines = []
    for each in PASSES:
        mark = " " if each.asked and asked.isdisjoint(each.asked) else "*"
        lines.append(f"{mark} {each.name:<40}{', '.join(each.asked) or 'every kernel'}")
        lines += [f"      after {before}: {why}" for before, why in each.after.items()]
    return "\n".join(lines)


def _of_definitions(
    problem: Problem, target: Target, choice: Choice, text: Callable[[Definition, Schedule], str]
) -> str:
    """Return the text of a problem's scheduled definition, of both where prepacked filters have one of their own."""
    from .compiler import plain_choice, schedule, sketches_of

    def of(choice: Choice, entry_points: EntryPoints) -> str:
        return text(*schedule(problem, target, choice, entry_points))

    other, packed = plain_choice(problem, target, choice), EntryPoints.PACKED
    plain = of(other, EntryPoints.PLAIN)
    same = sketches_of(choice.algorithm, problem, target, packed) is sketches_of(choice.algorithm, problem, target)
    if other == choice and same:
        return plain
    by = "" if other == choice else f", by {other.algorithm}"
    return f"# for filters as they are{by}\n{plain}\n# for prepacked filters\n{of(choice, packed)}"
