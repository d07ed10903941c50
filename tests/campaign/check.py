"""Problems tried in a worker process: kernels are compiled together, and run in a child of it that may crash or hang."""

from __future__ import annotations

import gc
import os
import random
import signal
import tempfile
import traceback
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tvmconv.algorithms import table as algorithms
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.compiler import Choice, samples, sketches_of
from tvmconv.problem import Problem
from tvmconv.runtime.bundle import BundleTarget
from tvmconv.runtime.emulation import Emulator, find_emulator
from tvmconv.signature import format_signature
from tvmconv.targets.target import CpuTarget

# How many kernels of a problem besides the default one.
EXTRA = (1, 1, 1, 2, 3)
# Of these, schedules whose sampled decisions are the sketch's own.
DEFAULT_DECISIONS = 0.25
# A kernel that takes longer hangs: the machine may be busy, and a poor schedule is slow.
LEAST_SECONDS, LEAST_FLOPS = 60.0, 2e7
# Where the package's sources lie, to say where an error came from.
SOURCES = tuple(str(Path(__file__).parents[2] / folder) for folder in ("tvmconv", "schedules"))


@dataclass(frozen=True)
class Case:
    """A problem to try: by some schedules drawn from `seed`, or by these, each for prepacked filters or not.

    With `algorithm`, those that are drawn are all of this one.
    """

    problem: Problem
    target: CpuTarget
    seed: int
    choices: tuple[tuple[Choice, bool], ...] | None = None
    algorithm: str | None = None


@dataclass(frozen=True)
class Batch:
    """Cases of one target whose kernels share a library, compiled `quick` (see `build.compile_all`) or as they ship."""

    cases: tuple[Case, ...]
    quick: bool = False
    folder: str | None = None  # for the library; None: the system's for temporary files

    def __str__(self) -> str:
        return f"trying {', '.join(format_signature(case.problem) for case in self.cases)}"


@dataclass(frozen=True)
class Outcome:
    """What became of one kernel of a case.

    Attributes
    ----------
    number
        Of the case in its batch.
    choice
        Its schedule; None: the failure concerns the problem.
    kind
        ``"right"``, or how it failed: ``"compile"``, ``"wrong"``, ``"bits"`` (they change with threads or
        places), ``"crash"``, ``"hang"``, ``"raised"``, ``"reference"`` (the reference and PyTorch disagree).
    detail
        The error, or how the answer differs.
    prepacked
        Whether it was compiled for prepacked filters.
    sketches
        How many sketches its algorithm has for the problem.
    """

    number: int
    choice: Choice | None
    kind: str
    detail: str = ""
    prepacked: bool = False
    sketches: int = 0


@cache
def _ignore_what_is_imported() -> None:
    """Keep the garbage collector from looking through TVM and PyTorch, which is most of what it does."""
    gc.freeze()


def work(batch: Batch) -> list[Outcome]:
    """Try a batch (in a `tvmconv.support.workers.Worker`)."""
    from .build import Kernel, compile_all, lowered

    _ignore_what_is_imported()
    outcomes: list[Outcome] = []
    planned: list[tuple[Outcome, Any]] = []
    for number, case in enumerate(batch.cases):
        try:
            plans = [Outcome(number, choice, "right", "", prepacked) for choice, prepacked in _choices(case)]
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this problem's failure)
            outcomes.append(Outcome(number, None, "compile", _described(error)))
            continue
        for plan in plans:
            choice = _choice(plan)
            try:
                sketches = len(
                    sketches_of(choice.algorithm, case.problem, case.target, _entry_points(plan.prepacked))[1]
                )
                function = lowered(case.problem, case.target, choice, _entry_points(plan.prepacked))
                planned.append((replace(plan, sketches=sketches), function))
            except Exception as error:  # noqa: BLE001 (as above)
                outcomes.append(replace(plan, kind="compile", detail=_described(error)))
    with tempfile.TemporaryDirectory(prefix="campaign-", dir=batch.folder) as folder:
        target = batch.cases[0].target
        built = compile_all([each for _, each in planned], target, str(Path(folder) / "batch.so"), batch.quick)
        runs: list[tuple[Outcome, Kernel]] = []
        for (plan, _), kernel in zip(planned, built, strict=True):
            if isinstance(kernel, Exception):
                outcomes.append(replace(plan, kind="compile", detail=_described(kernel)))
            else:
                runs.append((plan, kernel))
        outcomes += run_all(batch, runs)
    return outcomes


def _entry_points(prepacked: bool) -> EntryPoints:
    """Return what a kernel for prepacked filters, or as they are, is called by."""
    return EntryPoints.PACKED if prepacked else EntryPoints.PLAIN


def _choice(plan: Outcome) -> Choice:
    assert plan.choice is not None
    return plan.choice


def _described(error: Exception) -> str:
    """Return an error's last line and where in the package it came from."""
    lines = str(error).strip().splitlines() or [""]
    trace = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in trace if frame.filename.startswith(SOURCES)]
    where = f" (in {Path(ours[-1].filename).name}, {ours[-1].name})" if ours else ""
    return f"{type(error).__name__}: {lines[-1].strip()}{where}"


def _choices(case: Case) -> list[tuple[Choice, bool]]:
    """Return the schedules to try, each with whether it is for prepacked filters."""
    if case.choices is not None:
        return list(case.choices)
    draw = random.Random(case.seed)
    applicable = algorithms.applicable(case.problem, case.target)
    covering = [case.algorithm] if case.algorithm else [each.name for each in applicable]
    chosen = [(Choice(covering[0]), draw.random() < 0.5)]
    for _ in range(draw.choice(EXTRA)):
        algorithm, prepacked = draw.choice(covering), draw.random() < 0.5
        sketches = sketches_of(algorithm, case.problem, case.target, _entry_points(prepacked))[1]
        number = draw.randrange(len(sketches))
        if draw.random() < DEFAULT_DECISIONS:
            chosen.append((Choice(algorithm, number), prepacked))
        else:
            sizes = [len(sample.attrs[0]) for sample in samples(sketches[number])]
            chosen.append((Choice(algorithm, number, tuple(map(draw.randrange, sizes))), prepacked))
    return list(dict.fromkeys(chosen))


def run_all(batch: Batch, runs: list[tuple[Outcome, Any]]) -> list[Outcome]:
    """Run the kernels in children, each of which goes on until a kernel ends it."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(runs):
        outcomes += _run_some(batch, runs[len(outcomes) :])
    return outcomes


def _run_some(batch: Batch, runs: list[tuple[Outcome, Any]]) -> list[Outcome]:
    """Run kernels in a child until one ends it; return what became of them."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(batch, runs, Connection(writing))
    os.close(writing)
    outcomes: list[Outcome] = []
    connection = Connection(reading)
    kind = "crash"
    while len(outcomes) < len(runs):
        limit = LEAST_SECONDS + batch.cases[runs[len(outcomes)][0].number].problem.flops / LEAST_FLOPS
        if not connection.poll(limit):
            kind = "hang"
            break
        try:
            outcomes.append(connection.recv())
        except EOFError:
            break
    connection.close()
    if kind == "hang":
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if len(outcomes) < len(runs):
        how = f"it takes longer than {limit:.0f} s" if kind == "hang" else _death(status)
        outcomes.append(replace(runs[len(outcomes)][0], kind=kind, detail=how))
    return outcomes


def emulator_of(target: CpuTarget) -> Emulator | None:
    """Return what runs code of another instruction set; None: this machine, or nothing."""
    return find_emulator(BundleTarget("cpu", target.features))


def _death(status: int) -> str:
    return f"ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"


def _child(batch: Batch, runs: list[tuple[Outcome, Any]], connection: Connection) -> None:
    """Run kernels and report each; never returns."""
    status = 1
    try:
        from .run import EmulatedRunner, Runner

        emulator = emulator_of(batch.cases[0].target)
        runner: Runner | None = None
        for plan, kernel in runs:
            case = batch.cases[plan.number]
            try:
                if runner is None or runner.case is not case:
                    runner = EmulatedRunner(case, emulator) if emulator else Runner(case)
                kind, detail = runner.run(kernel, algorithms.get(_choice(plan).algorithm).numerical_class)
            except Exception as error:  # noqa: BLE001 (whatever it is, it is this kernel's failure)
                kind, detail = "raised", _described(error)
            connection.send(replace(plan, kind=kind, detail=detail))
        status = 0
    finally:
        os._exit(status)
