"""The campaign: batches of problems given to worker processes, failures sorted into families, each shrunk once."""

from __future__ import annotations

import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from tvmconv.algorithms import table as algorithms
from tvmconv.building.decision.slow import slow
from tvmconv.errors import TvmconvError
from tvmconv.lowering.compiler import Choice
from tvmconv.problem import Problem
from tvmconv.signature import format_signature
from tvmconv.support.sandbox import Sandbox, TimeoutExceededError
from tvmconv.targets.target import CpuTarget

from . import draw as draws
from . import regressions
from .check import Batch, Case, Outcome, work
from .shrink import shrink

# Problems whose kernels share a library; a process is replaced after so many batches, because TVM keeps memory.
TOGETHER, BATCHES = 8, 200
# What compiling a batch takes at most, for each of its problems, and running it.
CASE_SECONDS, FLOPS = 120.0, 1e7
# The share of batches that is compiled without LLVM's optimizations: three times as many problems in the same time.
QUICK_SHARE = 0.8
SHRINK_SECONDS = 90.0
# Problems drawn in vain, until one says that the campaign's algorithm covers none.
DRAWS = 20_000
REPORT_SECONDS = 1.0


@dataclass(frozen=True)
class Settings:
    """What a campaign does: see the command's options.

    With `algorithm`, only problems that it covers, by its schedules alone.
    """

    seed: int
    seconds: float | None
    problems: int | None
    targets: tuple[CpuTarget, ...]
    dtypes: tuple[str, ...]
    jobs: int
    save: Path | None
    algorithm: str | None = None


@dataclass
class Family:
    """Failures that look alike: how often, the first, and the smallest that was found."""

    target: str
    kind: str
    algorithm: str
    first: str
    smallest: str
    choice: Choice | None
    detail: str
    count: int = 1

    @property
    def lenient(self) -> bool:
        """Whether a rewrite refused, or a kernel took too long: no wrong kernel comes of it."""
        return self.kind == "hang" or (self.kind == "compile" and "RewriteError" in self.detail)


@dataclass
class Campaign:
    """Runs as its settings say, and counts.

    Attributes
    ----------
    problems
        Distinct problems tried, by target and type.
    kernels
        Kernels tried, by target, algorithm, type and formats.
    sketches
        Kernels tried of each sketch of each algorithm; 0 for those that were met and not drawn.
    families
        The failures.
    slow
        Problems whose default kernel `tvmconv build` calls slow, and why, those without an algorithm of the campaign's.
    """

    settings: Settings
    problems: Counter[tuple[str, str]] = field(default_factory=Counter)
    kernels: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    sketches: Counter[tuple[str, int]] = field(default_factory=Counter)
    families: dict[tuple[str, ...], Family] = field(default_factory=dict)
    slow: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        """Try problems until the time is over or there were enough."""
        # Of workers that crash, too, nothing is left behind.
        with tempfile.TemporaryDirectory(prefix="campaign-") as self._folder:
            self._run()

    def _run(self) -> None:
        self._start, self._lock, self._batch, self._done, self._stopped = time.monotonic(), Lock(), 0, 0, False
        print(f"seed {self.settings.seed}", file=sys.stderr, flush=True)
        with ThreadPoolExecutor(self.settings.jobs) as pool:
            futures = [pool.submit(self._work) for _ in range(self.settings.jobs)]
            try:
                while wait(futures, REPORT_SECONDS).not_done:
                    self._stopped |= any(future.done() and future.exception() for future in futures)
                    self._report()
            except KeyboardInterrupt:
                self._stopped = True
        for future in futures:
            future.result()  # raises what a thread raised
        if sys.stderr.isatty():
            print(file=sys.stderr)

    def _next(self) -> Batch | None:
        """Return the next batch, which its number and the seed determine; None at the end."""
        settings = self.settings
        late = settings.seconds is not None and time.monotonic() - self._start > settings.seconds
        with self._lock:
            number, self._batch = self._batch, self._batch + 1
        count = TOGETHER if settings.problems is None else min(TOGETHER, settings.problems - number * TOGETHER)
        if late or self._stopped or count <= 0:
            return None
        draw = random.Random(f"{settings.seed}/{number}")
        target = settings.targets[number % len(settings.targets)]
        quick = draw.random() < QUICK_SHARE
        # Layers would run for long where LLVM has optimized nothing.
        kind = draws.small_problem if quick else draws.problem
        cases = [
            Case(self._drawn(draw, kind, target), target, draw.randrange(2**32), algorithm=settings.algorithm)
            for _ in range(count)
        ]
        return Batch(tuple(cases), quick, self._folder)

    def _drawn(
        self, draw: random.Random, kind: Callable[[random.Random, tuple[str, ...]], Problem], target: CpuTarget
    ) -> Problem:
        """Draw a problem that the campaign's algorithm covers."""
        name = self.settings.algorithm
        for _ in range(DRAWS):
            problem = kind(draw, self.settings.dtypes)
            if name is None or algorithms.get(name).covers(problem, target) is None:
                return problem
        raise TvmconvError(
            f"{name} covers none of {DRAWS} problems that were drawn for {target.name}; why not one of them: "
            f"tvmconv explain {format_signature(problem)} --algorithms --target {target.name}"
        )

    def _work(self) -> None:
        sandbox: Sandbox[Batch, list[Outcome]] = Sandbox(work, threads=1, torch=True)
        batches = 0
        try:
            while (batch := self._next()) is not None:
                outcomes = _tried(sandbox, batch)
                self._count(batch, outcomes)
                for outcome in outcomes:
                    if outcome.kind != "right":
                        self._failed(sandbox, batch.cases[outcome.number], outcome, batch.quick)
                batches += 1
                if batches % BATCHES == 0:
                    sandbox.close()
        finally:
            sandbox.close()

    def _count(self, batch: Batch, outcomes: list[Outcome]) -> None:
        found: dict[str, str] = {}
        for case in batch.cases:
            first = algorithms.applicable(case.problem, case.target)[0]
            if reason := slow(case.problem, case.target, first.name):
                found[f"{format_signature(case.problem)} for {case.target.name}"] = reason
        with self._lock:
            self.slow |= found
            for case in batch.cases:
                self.problems[case.target.name, draws.kind_of(case.problem)] += 1
            self._done += len(batch.cases)
            for outcome in outcomes:
                if outcome.choice is None:
                    continue
                case, choice = batch.cases[outcome.number], outcome.choice
                formats = f"{case.problem.data_format}/{case.problem.filter_format}"
                kind = draws.kind_of(case.problem)
                self.kernels[case.target.name, choice.algorithm, kind, formats] += 1
                self.sketches[choice.algorithm, choice.sketch] += 1
                for number in range(outcome.sketches):
                    self.sketches[choice.algorithm, number] += 0

    def _failed(self, sandbox: Sandbox[Batch, list[Outcome]], case: Case, outcome: Outcome, quick: bool) -> None:
        """Put a failure into its family; shrink the first of each."""
        key = family(case, outcome)
        signature = format_signature(case.problem)
        with self._lock:
            if key in self.families:
                self.families[key].count += 1
                return
            algorithm = outcome.choice.algorithm if outcome.choice else ""
            found = Family(
                case.target.name, outcome.kind, algorithm, signature, signature, outcome.choice, outcome.detail
            )
            self.families[key] = found
        print(
            f"\nFAILED {signature} {outcome.choice} {case.target.name}: {outcome.kind}: {outcome.detail}",
            file=sys.stderr,
            flush=True,
        )
        if outcome.choice is None:
            return

        def failing(tries: Sequence[tuple[Problem, Sequence[Choice]]]) -> tuple[Problem, Choice] | None:
            cases = [
                Case(each, case.target, case.seed, tuple((choice, outcome.prepacked) for choice in choices))
                for each, choices in tries
            ]
            outcomes = _tried(sandbox, Batch(tuple(cases), quick, self._folder))
            for (each, choices), tried in zip(tries, cases, strict=True):
                for choice in choices:
                    for o in outcomes:
                        if cases[o.number] is tried and o.choice == choice and family(tried, o) == key:
                            found.detail = o.detail
                            return each, choice
            return None

        smallest, choice = shrink(case.problem, outcome.choice, failing, SHRINK_SECONDS)
        found.smallest, found.choice = format_signature(smallest), choice
        print(
            f"\nSHRUNK {found.smallest} {choice} {case.target.name}: {outcome.kind}: {found.detail}",
            file=sys.stderr,
            flush=True,
        )
        if self.settings.save is not None:
            with self._lock:
                regressions.append(
                    regressions.Regression(found.smallest, found.target, choice, f"{found.kind}: {found.detail}"),
                    self.settings.save,
                )

    def _report(self) -> None:
        if not sys.stderr.isatty():
            return
        spent = time.monotonic() - self._start
        shares = [spent / self.settings.seconds] if self.settings.seconds else []
        shares += [self._done / self.settings.problems] if self.settings.problems else []
        left = spent / max(shares) - spent if max(shares) > 0 else 0.0
        line = f"{self._done} problems, {sum(self.kernels.values())} kernels, {len(self.families)} families of failures"
        print(f"\r{line}, {max(left, 0):.0f} s left ", end="", file=sys.stderr, flush=True)

    def summary(self) -> dict[str, Any]:
        """Return the numbers of attempts and failures."""
        return {
            "seed": self.settings.seed,
            "seconds": round(time.monotonic() - self._start, 1),
            "problems": {" ".join(key): count for key, count in sorted(self.problems.items())},
            "kernels": {" ".join(key): count for key, count in sorted(self.kernels.items())},
            "sketches": {f"{name} {number}": count for (name, number), count in sorted(self.sketches.items())},
            "slow": self.slow,
            "failures": [
                {
                    "count": each.count,
                    "target": each.target,
                    "kind": each.kind,
                    "detail": each.detail,
                    "first": each.first,
                    "smallest": each.smallest,
                    "choice": [each.choice.algorithm, each.choice.sketch, each.choice.decisions]
                    if each.choice
                    else None,
                }
                for each in sorted(self.families.values(), key=lambda each: -each.count)
            ],
        }

    def text(self) -> str:
        """Return the summary to read."""
        total, failed = sum(self.problems.values()), sum(each.count for each in self.families.values())
        lines = [
            f"{total} problems, {sum(self.kernels.values())} kernels, {failed} failures; seed {self.settings.seed}"
        ]
        lines += [f"  {target} {dtype}: {count} problems" for (target, dtype), count in sorted(self.problems.items())]
        lines.append("kernels:")
        lines += [f"  {' '.join(key)}: {count}" for key, count in sorted(self.kernels.items())]
        missed = [f"{name} {number}" for (name, number), count in sorted(self.sketches.items()) if not count]
        lines.append(f"sketches that were not drawn: {', '.join(missed) or 'none'}")
        lines.append(f"slow by estimate: {len(self.slow)}")
        lines += [f"  {problem}: {reason}" for problem, reason in sorted(self.slow.items())]
        for each in sorted(self.families.values(), key=lambda each: -each.count):
            lines.append(f"{each.count} x {each.target} {each.kind} {each.detail}")
            lines.append(f"    {each.smallest} {each.choice} (first: {each.first})")
        return "\n".join(lines)


def family(case: Case, outcome: Outcome) -> tuple[str, ...]:
    """Return what failures that look alike share."""
    algorithm, problem = outcome.choice.algorithm if outcome.choice else "", case.problem
    if outcome.kind in ("compile", "raised"):
        return (outcome.kind, algorithm, re.sub(r"[0-9]+", "#", outcome.detail))
    traits = [name for name in ("strides", "dilations") if max(getattr(problem, name)) > 1]
    return (outcome.kind, algorithm, problem.op, problem.data_format, *traits)


def _tried(sandbox: Sandbox[Batch, list[Outcome]], batch: Batch) -> list[Outcome]:
    """Try a batch; where the compiler itself crashes or hangs, its problems one by one."""
    limit = sum(CASE_SECONDS + case.problem.flops / FLOPS for case in batch.cases)
    try:
        return sandbox.call(batch, limit)
    except TvmconvError as error:
        if len(batch.cases) == 1:
            kind = "hang" if isinstance(error, TimeoutExceededError) else "crash"
            return [Outcome(0, None, kind, f"the worker: {str(error).splitlines()[-1]}")]
    outcomes: list[Outcome] = []
    for number, case in enumerate(batch.cases):
        for each in _tried(sandbox, Batch((case,), batch.quick, batch.folder)):
            outcomes.append(replace(each, number=number))
    return outcomes
