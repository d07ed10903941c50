"""Candidates and schedules: the spaces of a problem, and the compilation of a candidate.

A record keeps the values that a space sampled, not their positions nor a trace: small, readable, and a
reordered or shortened list of options makes an older record fail to replay instead of meaning something else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from ..algorithms import table as algorithms
from ..errors import ReplayError, RewriteError, TvmconvError, last_line
from ..lowering.common.entry_points import EntryPoints
from ..lowering.compiler import Choice, CompiledKernel, compile_problem, samples, sketches_of
from ..problem import Problem
from ..targets.target import Target
from .search import Candidate, Decisions, Sketch, Space

# Errors that TVM raises when a schedule cannot be applied or compiled (its own class is a RuntimeError).
TVM_ERRORS = (RuntimeError, ValueError, TypeError, LookupError)


def spaces_of(problem: Problem, target: Target, math: str = "default", only: str | None = None) -> list[Space]:
    """Return the spaces of every algorithm worth trying with `math`, the one used with zero trials first; or of `only` one."""
    return [
        Space(
            algorithm.name,
            algorithm.version,
            algorithm.numerical_class,
            _open_all(algorithm.name, problem, target),
        )
        for algorithm in algorithms.worth_trying(problem, target, math)
        if only in (None, algorithm.name)
    ]


def choice_of(problem: Problem, target: Target, candidate: Candidate) -> Choice:
    """Return `candidate` as the compiler takes it; ReplayError if its space lacks these choices."""
    try:
        algorithm = algorithms.get(candidate.algorithm)
    except TvmconvError as error:
        raise ReplayError(str(error)) from None
    sketches = _open_all(algorithm.name, problem, target)
    if not 0 <= candidate.sketch < len(sketches):
        raise ReplayError(f"{algorithm.name} has {len(sketches)} sketches; the record is of number {candidate.sketch}")
    options = sketches[candidate.sketch].options
    if len(options) != len(candidate.decisions):
        raise ReplayError(f"{algorithm.name} makes {len(options)} choices; the record has {len(candidate.decisions)}")
    positions = []
    for number, (decision, allowed) in enumerate(zip(candidate.decisions, options, strict=True)):
        if decision not in allowed:
            raise ReplayError(f"choice {number} of {algorithm.name} is {decision}; it can be {allowed}")
        positions.append(allowed.index(decision))
    # The definition for prepacked filters may have other options, where the same positions are another schedule, or none.
    is_default = candidate.decisions == sketches[candidate.sketch].default
    return Choice(candidate.algorithm, candidate.sketch, None if is_default else tuple(positions))


@contextmanager
def replaying(candidate: Candidate) -> Iterator[None]:
    """Raise TVM's errors in this context as ReplayError, which names the candidate."""
    try:
        yield
    except TVM_ERRORS as error:
        if isinstance(error, TvmconvError) and not isinstance(error, RewriteError):
            raise
        raise ReplayError(f"{candidate}: {last_line(error)}") from error


def compile_candidate(
    problem: Problem,
    target: Target,
    candidate: Candidate,
    path: str | os.PathLike[str],
    entry_points: EntryPoints = EntryPoints.BOTH,
    apart: bool = False,
    next_lines: int = 0,
) -> CompiledKernel:
    """Compile one candidate into the shared library `path`, the rest as in `compile_problem`."""
    with replaying(candidate):
        choice = choice_of(problem, target, candidate)
        return compile_problem(
            problem, target, path, choice=choice, entry_points=entry_points, apart=apart, next_lines=next_lines
        )


# Keep as many as `sketches_of`: to read the options from TVM takes milliseconds.
@lru_cache(maxsize=128)
def _open_all(algorithm: str, problem: Problem, target: Target) -> tuple[Sketch, ...]:
    return tuple(map(_open, sketches_of(algorithm, problem, target)[1]))


def _open(sketch: Any) -> Sketch:
    instructions = samples(sketch)
    options: tuple[Decisions, ...] = tuple(tuple(int(value) for value in inst.attrs[0]) for inst in instructions)
    positions = [int(sketch.trace.decisions[inst]) for inst in instructions]
    return Sketch(options, tuple(allowed[place] for allowed, place in zip(options, positions, strict=True)))
