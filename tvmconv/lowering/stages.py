"""The stages of one kernel on its way from formulas to machine code, each as text.

The stages are those of `compile_problem`, which writes the library: what is shown is what ships.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..algorithms import table as algorithms
from ..errors import TvmconvError
from ..problem import Problem
from ..signature import format_signature
from ..targets.target import Target
from .code_generator import generator_of
from .common.entry_points import EntryPoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.s_tir import Schedule

    from ..algorithms.definition import Definition
    from .compiler import Choice

# Stages and their descriptions. This module is imported to list them, so the compiler only where one is shown.
STAGES = {
    "te": "the tensor expressions, as the function that is scheduled",
    "schedule": "the steps of the schedule, and what was chosen",
    "passes": "the passes over its loops, in order: the annotation that requests each, and the passes that must run before it (CPUs)",
    "tir": "the loops after all rewrites",
    "llvm": "LLVM IR (CPUs)",
    "asm": "machine code, the hot loop first (CPUs)",
    "cuda": "CUDA C++ (GPUs)",
    "sass": "machine code (GPUs)",
}
# Stages that are the same for all kinds of targets.
SCHEDULED = ("te", "schedule")


def show(stage: str, problem: Problem, target: Target, choice: Choice) -> str:
    """Return a stage of the kernel of a problem with the schedule `choice`.

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
        If nvcc, or the disassembler of GPU code, is missing or fails.
    """
    check_stage(stage, target)
    check_algorithm(choice.algorithm, problem, target)
    if stage in SCHEDULED:
        return _before_lowering(stage, problem, target, choice)
    return generator_of(target).show(stage, problem, target, choice)


def check_stage(stage: str, target: Target) -> None:
    """Raise TvmconvError if kernels for `target` have no such stage."""
    generator = generator_of(target)
    allowed, passes = (*SCHEDULED, *generator.stages), generator.passes
    if stage in allowed or stage in passes:
        return
    or_passes = f", or one of the passes {', '.join(passes)}" if passes else ""
    raise TvmconvError(
        f"stage is {stage!r}, which {target.name} does not have; allowed: {', '.join(allowed)}{or_passes}"
    )


def check_algorithm(name: str, problem: Problem, target: Target) -> None:
    """Raise TvmconvError, with the reason, if an algorithm does not compute the problem on the target."""
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


def _before_lowering(stage: str, problem: Problem, target: Target, choice: Choice) -> str:
    """Return the stages before lowering."""
    from .schedule_text import schedule_text

    def text(definition: Definition, schedule: Schedule) -> str:
        return str(definition.func.script()) if stage == "te" else schedule_text(definition, schedule)

    return of_definitions(problem, target, choice, text)


def of_definitions(
    problem: Problem, target: Target, choice: Choice, text: Callable[[Definition, Schedule], str]
) -> str:
    """Return the text of a problem's scheduled definition, and of the one for prepacked filters if there is one."""
    from .compiler import has_own_prepacked, plain_choice, schedule

    def of(choice: Choice, entry_points: EntryPoints) -> str:
        return text(*schedule(problem, target, choice, entry_points))

    other, packed = plain_choice(problem, target, choice), EntryPoints.PACKED
    plain = of(other, EntryPoints.PLAIN)
    if other == choice and not has_own_prepacked(choice.algorithm, problem, target):
        return plain
    by = "" if other == choice else f", by {other.algorithm}"
    return f"# for filters as they are{by}\n{plain}\n# for prepacked filters\n{of(choice, packed)}"
