"""Candidates compiled to be measured: several in one library, which has only what measuring calls.

Checks of the arguments, LLVM's start on a module and the linker's would together take longer than most kernels do. The
code of the kernels themselves is that of the libraries that ship.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import tirx

from ..errors import ReplayError
from ..lowering.compiler import generate, schedule
from ..lowering.cpu.linker import link
from ..lowering.cpu.pipeline import functions_of, lower
from ..lowering.entry_points import EntryPoints
from ..measuring.race import Built
from ..problem import Problem
from ..targets.cuda import CudaTarget
from ..targets.target import Target
from .replay import choice_of, compile_candidate, replaying, spaces_of
from .search import Candidate, Space
from .tasks import Compile, Describe


def work(task: Describe | Compile) -> list[Space] | list[Built | ReplayError]:
    """Run one task (in a `tvmconv.support.workers.Worker`, which imports TVM once for many)."""
    if isinstance(task, Describe):
        return spaces_of(task.problem, task.target, task.math)
    if task.finalist or isinstance(task.target, CudaTarget):
        return [_alone(task, candidate, number) for number, candidate in enumerate(task.candidates)]
    return compile_trials(task.problem, task.target, task.candidates, task.path)


def compile_trials(
    problem: Problem, target: Target, candidates: Sequence[Candidate], path: str
) -> list[Built | ReplayError]:
    """Compile candidates into the library `path`; return how to call each, or why it does not compile."""
    results: list[Built | ReplayError] = []
    functions: dict[str, tirx.PrimFunc] = {}
    for number, candidate in enumerate(candidates):
        ending = f"_{number}"
        try:
            with replaying(candidate):
                definition, scheduled = schedule(
                    problem, target, choice_of(problem, target, candidate), EntryPoints.PACKED
                )
                lowered = lower(scheduled.mod, definition, EntryPoints.PACKED)
        except ReplayError as error:
            results.append(error)
            continue
        for symbol, function in functions_of(lowered.module).items():
            functions[symbol + ending] = function.with_attr("global_symbol", symbol + ending)
        layout = lowered.layout
        results.append(Built(path, (layout.elements, layout.dtype) if layout else None, ending))
    try:
        with replaying(candidates[0]), tvm.transform.PassContext(config={"tirx.disable_assert": True}):
            if functions:
                link(generate(tvm.IRModule(functions), target), path)
    except ReplayError as error:
        if len(candidates) == 1:
            return [error]
        alone = enumerate(candidates)
        return [each for number, c in alone for each in compile_trials(problem, target, [c], f"{path}.{number}.so")]
    return results


def _alone(task: Compile, candidate: Candidate, number: int) -> Built | ReplayError:
    """Compile a candidate into a library of its own."""
    path = f"{task.path}.{number}.so"
    try:
        packed = compile_candidate(task.problem, task.target, candidate, path, EntryPoints.PACKED).packed_filter
    except ReplayError as error:
        return error
    return Built(path, (packed["bytes"] // 4, packed["dtype"]) if packed else None)
