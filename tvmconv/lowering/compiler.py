"""One problem compiled into one shared library."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import Trace

from ..algorithms import table as algorithms
from ..algorithms.definition import Definition
from ..errors import ReplayError
from ..problem import Problem
from ..runtime.kernel_object import KernelObject
from ..targets.target import Target
from .code_generator import generator_of
from .common.entry_points import SYMBOL, EntryPoints


@dataclass(frozen=True)
class Choice:
    """A schedule of a problem: an algorithm, one of its sketches, and for each sampling instruction the index of the candidate (None: defaults)."""

    algorithm: str
    sketch: int = 0
    decisions: tuple[int, ...] | None = None


@dataclass(frozen=True)
class CompiledKernel:
    """A compiled kernel: its entry in the manifest, its functions before LLVM and its object (as `tvmconv.lowering.code_generator.Written`)."""

    algorithm: str
    version: int
    numerical_class: str
    symbol: str
    packed_filter: dict[str, Any] | None
    workspace_bytes: int
    functions: tvm.IRModule | None = None
    code: KernelObject | None = None


def default_choice(problem: Problem, target: Target, math: str = "default") -> Choice:
    """Return the schedule used with zero trials; `math` as in `tvmconv.algorithms.table.applicable`."""
    return Choice(algorithms.applicable(problem, target, math)[0].name)


def plain_choice(problem: Problem, target: Target, choice: Choice) -> Choice:
    """Return the schedule of calls with plain filters: `choice`, or the default of an algorithm that gains by not packing."""
    plain = algorithms.for_plain_filters(choice.algorithm, problem, target).name
    return choice if plain == choice.algorithm else Choice(plain)


def sketches_of(
    algorithm: str, problem: Problem, target: Target, entry_points: EntryPoints = EntryPoints.PLAIN
) -> tuple[Definition, tuple[Schedule, ...]]:
    """Return an algorithm's definition of a problem and its sketches, the default first.

    With ``PACKED`` alone, those of its definition for prepacked filters, if it has one; else the same objects.
    """
    return _sketches_of(algorithm, problem, target, _own_prepacked(algorithm, problem, target, entry_points))


def has_own_prepacked(algorithm: str, problem: Problem, target: Target) -> bool:
    """Return whether an algorithm has another definition for prepacked filters."""
    return _own_prepacked(algorithm, problem, target, EntryPoints.PACKED)


def _own_prepacked(algorithm: str, problem: Problem, target: Target, entry_points: EntryPoints) -> bool:
    return EntryPoints.PLAIN not in entry_points and _definition_of(algorithm, problem, target, True) is not None


# Enough for all algorithms of the problems being tuned, whose turns and candidates come in any order.
@lru_cache(maxsize=128)
def _definition_of(algorithm: str, problem: Problem, target: Target, prepacked: bool) -> Definition | None:
    found = algorithms.get(algorithm)
    return found.define_prepacked(problem, target) if prepacked else found.define(problem, target)


@lru_cache(maxsize=128)
def _sketches_of(
    algorithm: str, problem: Problem, target: Target, prepacked: bool
) -> tuple[Definition, tuple[Schedule, ...]]:
    definition = _definition_of(algorithm, problem, target, prepacked)
    assert definition is not None
    return definition, tuple(algorithms.get(algorithm).sketches(definition, target))


@lru_cache(maxsize=128)
def _default_of(algorithm: str, problem: Problem, target: Target, prepacked: bool) -> tuple[Definition, Schedule]:
    definition = _definition_of(algorithm, problem, target, prepacked)
    assert definition is not None
    return definition, algorithms.get(algorithm).default_sketch(definition, target)


def schedule(
    problem: Problem, target: Target, choice: Choice, entry_points: EntryPoints = EntryPoints.PLAIN
) -> tuple[Definition, Schedule]:
    """Return the definition of a problem and its schedule by `choice`; `entry_points` as in :func:`sketches_of`.

    Raises
    ------
    ReplayError
        If the algorithm has no such sketch, or the decisions do not fit its samples.
    """
    if choice.sketch == 0 and choice.decisions is None:
        prepacked = _own_prepacked(choice.algorithm, problem, target, entry_points)
        return _default_of(choice.algorithm, problem, target, prepacked)
    definition, sketches = sketches_of(choice.algorithm, problem, target, entry_points)
    if not 0 <= choice.sketch < len(sketches):
        raise ReplayError(
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
        raise ReplayError(f"decisions {list(decisions)} do not fit samples of {candidates} candidates")
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
    entry_points: EntryPoints = EntryPoints.BOTH,
    apart: bool = False,
    next_lines: int = 0,
) -> CompiledKernel:
    """Compile a problem into the shared library `path`.

    Parameters
    ----------
    choice
        The schedule; absent: the default one of the first applicable algorithm.
    entry_points
        Entry points of the library. Without ``PLAIN``, calls with plain filters pack.
    apart
        Return the kernel's object rather than keep it in the library.
    next_lines
        Most lines of a network's next filter that a CPU's kernel can prefetch (`tvmconv.lowering.cpu.rewrites.next_filter`).

    Raises
    ------
    ToolchainError
        If the C compiler, or nvcc for a CUDA target, is missing, too old, or fails.
    """
    choice = choice or default_choice(problem, target)
    written = generator_of(target).write(problem, target, choice, entry_points, path, apart, next_lines)
    algorithm = algorithms.get(choice.algorithm)
    return CompiledKernel(algorithm.name, algorithm.version, algorithm.numerical_class, SYMBOL, *written)
