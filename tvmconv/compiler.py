"""One problem compiled into one shared library."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from . import algorithms
from .cuda_linker import link_cuda
from .cuda_lowering import to_source
from .cuda_target import CudaTarget
from .definitions.definition import Definition
from .linker import link
from .lowering import PIPELINE, SYMBOL, Lowered, functions_of, lower, workspace_bytes
from .problem import Problem
from .target import Target


@dataclass(frozen=True)
class Choice:
    """A schedule of a problem: an algorithm, one of its sketches, and the sampled decisions of that sketch.

    Attributes
    ----------
    algorithm
        Name of the algorithm.
    sketch
        Index of the sketch.
    decisions
        For each sampling instruction in order, the index of the candidate; None: the defaults.
    """

    algorithm: str
    sketch: int = 0
    decisions: tuple[int, ...] | None = None


@dataclass(frozen=True)
class CompiledKernel:
    """What the manifest says of a compiled kernel."""

    algorithm: str
    version: int
    numerical_class: str
    symbol: str
    packed_filter: dict[str, Any] | None
    workspace_bytes: int


def default_choice(problem: Problem, target: Target, math: str = "default") -> Choice:
    """Return the schedule used with zero trials; `math` as in `tvmconv.algorithms.applicable`."""
    return Choice(algorithms.applicable(problem, target, math)[0].name)


# All algorithms of a problem that is being tuned, whose candidates come in any order.
@lru_cache(maxsize=16)
def sketches_of(
    algorithm: str, problem: Problem, target: Target, ahead: bool = False
) -> tuple[Definition, tuple[Schedule, ...]]:
    """Return an algorithm's definition of a problem and its sketches, the default first.

    With `ahead`, what it has for filters packed ahead, if that is another.
    """
    found = algorithms.get(algorithm)
    definition = found.ahead(problem, target) if ahead else found.define(problem, target)
    if definition is None:
        return sketches_of(algorithm, problem, target)
    return definition, tuple(found.sketches(definition, target))


def schedule(problem: Problem, target: Target, choice: Choice, ahead: bool = False) -> tuple[Definition, Schedule]:
    """Return the definition of a problem and its schedule by `choice`; `ahead` as in :func:`sketches_of`.

    Raises
    ------
    LookupError
        If the algorithm has no such sketch, or the decisions do not fit its samples.
    """
    definition, sketches = sketches_of(choice.algorithm, problem, target, ahead)
    if not 0 <= choice.sketch < len(sketches):
        raise LookupError(
            f"{choice.algorithm} has {len(sketches)} sketches for this problem; there is no sketch {choice.sketch}"
        )
    sketch = sketches[choice.sketch]
    return definition, sketch if choice.decisions is None else decide(definition, sketch, choice.decisions)


def samples(sketch: Schedule) -> list[Any]:
    """Return the sampling instructions of a sketch, in order; ``attrs[0]`` of each are its candidates."""
    return [inst for inst in sketch.trace.insts if inst in sketch.trace.decisions]


def decide(definition: Definition, sketch: Schedule, decisions: tuple[int, ...]) -> Schedule:
    """Return the sketch replayed with other decisions."""
    sampling = samples(sketch)
    candidates = [len(inst.attrs[0]) for inst in sampling]
    if len(decisions) != len(sampling) or any(not 0 <= d < n for d, n in zip(decisions, candidates, strict=True)):
        raise LookupError(f"decisions {list(decisions)} do not fit samples of {candidates} candidates")
    trace = Trace(sketch.trace.insts, dict(zip(sampling, decisions, strict=True)))
    replayed = Schedule(definition.func, seed=1)
    trace.apply_to_schedule(replayed, remove_postproc=False)
    return replayed


def compile_problem(
    problem: Problem,
    target: Target,
    path: str | os.PathLike[str],
    *,
    choice: Choice | None = None,
    plain: bool = True,
) -> CompiledKernel:
    """Compile a problem into the shared library `path`.

    Parameters
    ----------
    choice
        The schedule; absent: the default one of the first applicable algorithm.
    plain
        Whether the library has the best for plain filters too where another is best for those packed ahead. Tuning,
        which measures the latter, does without it: calls with plain filters then pack.

    Raises
    ------
    ToolchainError
        If the C compiler, or nvcc for a CUDA target, is missing, too old, or fails.
    """
    choice = choice or default_choice(problem, target)
    definition, scheduled = schedule(problem, target, choice, ahead=not plain)
    packed_filter = None
    if isinstance(target, CudaTarget):
        kernel = to_source(scheduled.mod, definition, target)
        link_cuda(kernel, problem, target, path)
        workspace = kernel.workspace_bytes
    else:
        lowered = lower(scheduled.mod, definition)
        if plain and lowered.layout is None:
            lowered = _with_packed(lowered, problem, target, choice)
        link(tvm.compile(lowered.module, target.tvm(), tir_pipeline=PIPELINE), path)
        workspace = workspace_bytes(lowered.module)
        packed_filter = lowered.layout.described() if lowered.layout else None
    algorithm = algorithms.get(choice.algorithm)
    return CompiledKernel(
        algorithm.name, algorithm.version, algorithm.numerical_class, SYMBOL, packed_filter, workspace
    )


def _with_packed(plain: Lowered, problem: Problem, target: Target, choice: Choice) -> Lowered:
    """Return a kernel that reads its filter in place with what its algorithm has for filters packed ahead, if anything."""
    with_ahead = sketches_of(choice.algorithm, problem, target, ahead=True)
    if with_ahead is sketches_of(choice.algorithm, problem, target):
        return plain
    definition, scheduled = schedule(problem, target, choice, ahead=True)
    other = lower(scheduled.mod, definition)
    return Lowered(tvm.IRModule({**functions_of(other.module), **functions_of(plain.module)}), other.layout)
