"""MetaSchedule's view of the spaces: a workload for each algorithm of a problem, and its sketches as design spaces.

The attributes of a workload name its problem, target and algorithm. They survive scheduling and MetaSchedule's databases. The
instructions of a trace identify its sketch: sketches with equal instructions are equal schedules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.space_generator import PySpaceGenerator
from tvm.s_tir.schedule import Trace

from ..algorithms import table as algorithms
from ..algorithms.annotations import ALGORITHM, SIGNATURE, TARGET, VERSION
from ..errors import ReplayError
from ..lowering.compiler import samples, sketches_of
from ..problem import Problem
from ..signature import format_signature, parse_signature
from ..targets.target import Target
from .mutator import MutateChoice
from .replay import choice_of
from .search import Candidate

# MetaSchedule's number for no limit.
NO_LIMIT = 2**31 - 1
INTRINSICS = "tvm.s_tir.tensor_intrin"


@dataclass(frozen=True)
class Workload:
    """Task of MetaSchedule: one algorithm's definition of a problem.

    Attributes
    ----------
    problem, target, algorithm
        What it computes, for which target, by which algorithm.
    module
        The definition, with attributes that name these.
    sketches
        The sketches of the module, the default first.
    numbers
        Number of each sketch by the text of its instructions.
    """

    problem: Problem
    target: Target
    algorithm: str
    module: tvm.IRModule
    sketches: tuple[Schedule, ...]
    numbers: Mapping[str, int]

    def trace(self, candidate: Candidate) -> Trace:
        """Return the trace of a candidate of this algorithm; ReplayError if its space lacks these choices."""
        choice = choice_of(self.problem, self.target, candidate)
        sketch = self.sketches[choice.sketch]
        if choice.decisions is None:
            return sketch.trace
        return Trace(sketch.trace.insts, dict(zip(samples(sketch), choice.decisions, strict=True)))

    def candidate(self, trace: Trace) -> Candidate:
        """Return the candidate of a trace; ReplayError if it is of no sketch."""
        simple = trace.simplified(True)
        number = self.numbers.get(_instructions(simple))
        if number is None:
            raise ReplayError(f"a trace is of no sketch of {self.algorithm} for {format_signature(self.problem)}")
        sketch = self.sketches[number]
        # Unused samples are simplified away: those with one option, which tell sketches apart.
        used = [inst for inst in sketch.trace.simplified(True).insts if inst in sketch.trace.decisions]
        decided = [simple.decisions[inst] for inst in simple.insts if inst in simple.decisions]
        places = {**sketch.trace.decisions, **dict(zip(used, decided, strict=True))}
        decisions = tuple(int(inst.attrs[0][int(places[inst])]) for inst in samples(sketch))
        return Candidate(self.algorithm, number, decisions)


@lru_cache(maxsize=128)
def workload_of(problem: Problem, target: Target, algorithm: str) -> Workload:
    """Return an algorithm's workload of a problem that it covers."""
    definition, sketches = sketches_of(algorithm, problem, target)
    function = definition.func.with_attr("global_symbol", "main")
    facts = {
        SIGNATURE: format_signature(problem),
        TARGET: target.name,
        ALGORITHM: algorithm,
        VERSION: algorithms.get(algorithm).version,
    }
    for name, value in facts.items():
        function = function.with_attr(name, value)
    # Keep a reference: a schedule changes a module in place that nobody else holds.
    module = tvm.IRModule({"main": function})
    ours = []
    for sketch in sketches:
        schedule = Schedule(module, seed=1)
        sketch.trace.apply_to_schedule(schedule, remove_postproc=False)
        ours.append(schedule)
    texts = [_instructions(each.trace.simplified(True)) for each in ours]
    numbers = {text: texts.index(text) for text in texts}
    return Workload(problem, target, algorithm, module, tuple(ours), numbers)


def workload_in(module: tvm.IRModule) -> Workload:
    """Return the workload of a module, by its attributes.

    Raises
    ------
    ReplayError
        If the module is no workload, or one of another version of its algorithm.
    TvmconvError
        If its signature, its target or its algorithm is unknown.
    """
    attributes = next(iter(module.functions.values())).attrs or {}
    if SIGNATURE not in attributes:
        raise ReplayError("a workload is none of tvmconv.metaschedule.tasks")
    algorithm = algorithms.get(str(attributes[ALGORITHM]))
    signature, version = str(attributes[SIGNATURE]), int(attributes[VERSION])
    if algorithm.version != version:
        raise ReplayError(
            f"a workload of {signature} is of version {version} of {algorithm.name}, which is at {algorithm.version}"
        )
    host = Target.parse("host")
    name = str(attributes[TARGET])
    return workload_of(parse_signature(signature), host if name == host.name else Target.parse(name), algorithm.name)


@derived_object
class Sketches(PySpaceGenerator):  # type: ignore[misc]
    """The sketches of a workload's space, with the mutator that changes their decisions."""

    sch_rules: tuple[()] = ()
    postprocs: tuple[()] = ()

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._seed = seed
        self.mutator_probs = {MutateChoice(seed): 1.0}

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        pass

    def generate_design_space(self, mod: tvm.IRModule) -> list[Schedule]:
        """Return the sketches, the default first."""
        return list(workload_in(mod).sketches)

    def clone(self) -> Any:
        """Return another generator."""
        return Sketches(self._seed)


def tune_context(module: tvm.IRModule, seed: int = 0, **named: Any) -> TuneContext:
    """Return a TuneContext of one thread, without TVM's tensor intrinsics, of which this project's spaces use none."""
    with _without_intrinsics():
        return TuneContext(module, num_threads=1, rand_state=random_state(seed), **named)


def random_state(seed: int) -> int:
    """Return a seed of at least 0 as one in TVM's range: from 1 on, in 31 bits."""
    return seed % NO_LIMIT + 1


@contextmanager
def _without_intrinsics() -> Iterator[None]:
    """Let an import of the tensor intrinsics, which takes 17 s, find an empty module."""
    if INTRINSICS in sys.modules:
        yield
        return
    sys.modules[INTRINSICS] = ModuleType(INTRINSICS)
    try:
        yield
    finally:
        del sys.modules[INTRINSICS]


def _instructions(trace: Trace) -> str:
    return "\n".join(Trace(trace.insts, {}).as_python())
