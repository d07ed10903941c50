"""MetaSchedule's own search strategies on our spaces, one for each algorithm of a problem, in turns: what ours is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from tvm.s_tir.meta_schedule import MeasureCandidate
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import EvolutionarySearch, ReplayTrace, SearchStrategy

from tvmconv.problem import Problem
from tvmconv.targets.target import Target
from tvmconv.tuning.contexts import NO_LIMIT, Sketches, Workload, random_state, tune_context, workload_of
from tvmconv.tuning.search import Candidate, Space, first_of
from tvmconv.tuning.turns import BATCH

# Of EvolutionarySearch: its own 512 take minutes to think about spaces of some hundred schedules.
POPULATION = 64
# An algorithm whose fastest takes so many times as long as the fastest of all has no more turns.
CUT_OFF = 1.5
# How often a strategy may propose nothing new before it is done.
PATIENCE = 4


class MetaScheduleSearch:
    """Proposes the defaults and the `starts`, then what strategies of MetaSchedule do.

    Parameters
    ----------
    problem, target, spaces
        What is tuned.
    strategy
        ``"replay-trace"`` (random) or ``"evolutionary"``.
    cost_model
        Of the evolutionary search: ``"random"`` or ``"xgb"``.
    seed
        Of the random choices.
    measured
        Seconds of candidates measured before; ``math.inf`` for those that failed.
    starts
        Candidates of the spaces to propose first, after the defaults.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        spaces: Sequence[Space],
        strategy: str,
        cost_model: str,
        seed: int,
        measured: Mapping[Candidate, float],
        starts: Sequence[Candidate],
    ) -> None:
        self._model = _model(cost_model, seed)
        self._seconds = dict(measured)
        self._first = [each for each in first_of(spaces, starts) if each not in measured]
        self._proposed = {*measured}
        self._sizes = {space.algorithm: sum(sketch.size for sketch in space.sketches) for space in spaces}
        self._algorithms = [
            _Algorithm(workload_of(problem, target, space.algorithm), strategy, seed + len(measured), self._model)
            for space in spaces
        ]
        for candidate, seconds in measured.items():
            self.tell(candidate, seconds)

    def propose(self, count: int) -> list[Candidate]:
        """Return at most `count` candidates that were never proposed; none when nothing is left."""
        candidates, self._first = self._first[:count], self._first[count:]
        while not candidates and (waiting := [each for each in self._algorithms if self._deserves(each)]):
            algorithm = waiting[0]
            self._algorithms.remove(algorithm)
            for _ in range(PATIENCE):
                candidates = [each for each in algorithm.generate() if each not in self._proposed][:count]
                if candidates:
                    self._algorithms.append(algorithm)  # the last in turn
                    break
        self._proposed.update(candidates)
        return candidates

    def tell(self, candidate: Candidate, seconds: float) -> None:
        """Take in a measurement; ``math.inf`` for a candidate that failed."""
        self._seconds[candidate] = seconds
        for algorithm in self._algorithms:
            if algorithm.name == candidate.algorithm:
                algorithm.tell(candidate, seconds)

    def _deserves(self, algorithm: _Algorithm) -> bool:
        """Whether it has schedules left, and one of them may win."""
        best = min(self._seconds.values(), default=inf)
        own = [seconds for each, seconds in self._seconds.items() if each.algorithm == algorithm.name]
        return len(own) < self._sizes[algorithm.name] and min(own, default=inf) <= CUT_OFF * best


class _Algorithm:
    """The task of one algorithm, its strategy, and what both learn from."""

    def __init__(self, workload: Workload, strategy: str, seed: int, model: CostModel) -> None:
        self.name = workload.algorithm
        self._workload = workload
        self._model = model
        self._database = MemoryDatabase()
        self._committed = self._database.commit_workload(workload.module)
        self._arguments = ArgInfo.from_prim_func(workload.module["main"])
        self._target = workload.target.tvm()
        self._context = tune_context(
            workload.module,
            target=self._target,
            space_generator=Sketches(seed),
            search_strategy=_strategy(strategy),
            seed=seed,
        )
        self._started = False
        self._pending: dict[Candidate, MeasureCandidate] = {}
        self._told: list[tuple[MeasureCandidate, RunnerResult]] = []

    def generate(self) -> list[Candidate]:
        """Return the strategy's next candidates, after the results of the last; none at its end."""
        if not self._started:
            self._context.pre_tuning(NO_LIMIT, BATCH, database=self._database, cost_model=self._model)
            self._started = True
        if self._told:
            candidates, results = zip(*self._told, strict=True)
            self._told = []
            self._context.notify_runner_results(candidates, results)
            self._model.update(self._context, candidates, results)
        found = self._context.generate_measure_candidates() or []
        self._pending = {self._workload.candidate(each.sch.trace): each for each in found}
        return list(self._pending)

    def tell(self, candidate: Candidate, seconds: float) -> None:
        """Take in a measurement."""
        if candidate in self._pending:
            failed = seconds == inf
            result = RunnerResult(None if failed else [seconds], "it failed" if failed else None)
            self._told.append((self._pending[candidate], result))
        if seconds < inf:
            trace = self._workload.trace(candidate)
            record = TuningRecord(trace, self._committed, [seconds], self._target, self._arguments)
            self._database.commit_tuning_record(record)


def _strategy(name: str) -> SearchStrategy:
    return ReplayTrace() if name == "replay-trace" else EvolutionarySearch(population_size=POPULATION)


def _model(name: str, seed: int) -> CostModel:
    if name == "random":
        return CostModel.create("random", seed=random_state(seed))
    return CostModel.create("xgb", num_tuning_cores=1, tree_method="auto", extractor=PerStoreFeature())
