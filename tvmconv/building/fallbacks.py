"""Compile a problem by the first choice whose kernel compiles and is right.

The ways are the tuning record, the schedule of a similar problem, the default, the other algorithms by increasing estimate, and
`plain`. A way that fails is skipped, and the manifest says why.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CompilationError, ToolchainError, TvmconvError, VerificationError, last_line
from ..family import ProblemFamily
from ..lowering.common.entry_points import EntryPoints
from ..problem import Problem
from ..runtime.bundle import Bundle, BundleTarget, Entry
from ..runtime.kernel_object import KernelObject
from ..runtime.processors import allowed_processors
from ..runtime.verify import REFERENCE_FLOPS, KernelCheck, check_kernel
from ..support.files import check_full
from ..support.forking import fork_workers
from ..support.sandbox import Call
from ..support.timing import stage
from ..support.workers import serve_forked, workers_ahead
from ..targets.target import CpuTarget, Target
from ..tuning.records import Record
from ..version import __version__
from .decision.decide import Decision, Way

if TYPE_CHECKING:
    from ..lowering.compiler import CompiledKernel
    from ..tuning.search import Candidate

# A way that takes longer, without the reference that checks it, hangs.
ATTEMPT_SECONDS = 600.0
# File systems take 255 bytes; a hash and endings follow.
LONGEST_NAME = 200
# Most characters of a reason in the manifest: some lines of a table.
LONGEST_REASON = 300
# Modules that compile a way.
_COMPILER = ("tvmconv.lowering.compiler", "tvmconv.lowering.cpu.family", "tvmconv.tuning.replay")


@dataclass(frozen=True)
class Job:
    """Compile a decision into the bundle `folder`, and verify the kernel if asked to.

    `entry_points` as in `tvmconv.lowering.compiler.compile_problem`; `keep_functions`: return its functions and object beside
    the kernel, for a network, and compile it to prefetch at most `next_lines` lines of the next filter.
    """

    decision: Decision
    folder: str
    check: bool
    entry_points: EntryPoints = EntryPoints.BOTH
    keep_functions: bool = False
    next_lines: int = 0

    @property
    def problem(self) -> Problem | ProblemFamily:
        """Return the problem, or the family."""
        return self.decision.problem

    @property
    def sizes(self) -> tuple[Problem, ...]:
        """Problems at which a family's kernel is checked; empty for a single problem."""
        return self.problem.examples() if isinstance(self.problem, ProblemFamily) else ()

    @property
    def flops(self) -> int:
        """Operations of a check."""
        problem = self.problem
        return sum(each.flops for each in self.sizes) if isinstance(problem, ProblemFamily) else problem.flops

    @property
    def target(self) -> Target:
        """Return the target."""
        return self.decision.target

    def __str__(self) -> str:
        return str(self.decision)


@dataclass(frozen=True)
class Attempt:
    """Try a way of a job, into the library `file` of its folder."""

    job: Job
    way: Way
    file: str

    def __str__(self) -> str:
        return f"{self.job} by {self.way.algorithm}"


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel that compiled and is right.

    Attributes
    ----------
    entry
        The entry in the manifest.
    functions
        Its functions before LLVM, as TVM's JSON, if its job keeps them.
    code
        Its object, if its job keeps functions: the library then has none.
    """

    entry: Entry
    functions: str | None = None
    code: KernelObject | None = None


@dataclass(frozen=True)
class Outcome:
    """Outcome of a job.

    Attributes
    ----------
    built
        The kernel; None: no way held.
    skipped
        Algorithms that came before it, and why they were skipped.
    slow
        Why the kernel is slow by estimate, in words; None: it is not.
    """

    job: Job
    built: BuiltKernel | None
    skipped: tuple[dict[str, str], ...]
    slow: str | None = None


def first_right(call: Call[Attempt, BuiltKernel | None], job: Job) -> Outcome:
    """Try the ways of a job by ``call(attempt, seconds)``, which runs :func:`attempt` in a process of its own.

    Raises
    ------
    ToolchainError
        If each of them fails for want of a tool.
    OSError
        If the disk is full, which is no schedule's fault either.
    """
    skipped: list[dict[str, str]] = []
    errors: list[TvmconvError] = []
    folder = Path(job.folder)
    file, suffix = file_of(job), job.target.library_suffix
    for count, way in enumerate(job.decision.ways):
        # A process would take a new library for one of the same name that it has loaded.
        trial = Attempt(job, way, f"{file.removesuffix(suffix)}.{count}{suffix}")
        try:
            built = call(trial, ATTEMPT_SECONDS + job.flops / REFERENCE_FLOPS)
        except TvmconvError as error:
            (folder / trial.file).unlink(missing_ok=True)
            check_full(error, folder.parent)
            skipped.append({"algorithm": way.algorithm, "reason": _reason(error, way)})
            errors.append(error)
            continue
        if built is not None:
            os.replace(folder / trial.file, folder / file)
            entry = replace(built.entry, file=file, skipped=tuple(skipped))
            return Outcome(job, replace(built, entry=entry), tuple(skipped))
    if all(isinstance(error, ToolchainError) for error in errors):
        raise errors[0]  # no schedule's fault
    return Outcome(job, None, tuple(skipped))


def file_of(job: Job) -> str:
    """Return the library of a job's kernel, within its folder."""
    return f"{job.target.folder}/{_file_name(job.decision.signature)}{job.target.library_suffix}"


def _file_name(signature: str) -> str:
    """Return a library's file name: its signature, or a part of it and a hash where file systems do not allow its length or characters."""
    plain = re.sub(r"[^A-Za-z0-9_.()+-]", "_", signature)  # of families
    if plain == signature and len(signature) <= LONGEST_NAME:
        return signature
    return f"{plain[:LONGEST_NAME]}-{hashlib.sha256(signature.encode()).hexdigest()[:16]}"


def fork_ahead(builds: int = 1, more: int = 0) -> None:
    """Fork one process a processor, and `more`, for :func:`attempt` of later builds, if this process may (`tvmconv.support.forking`)."""
    if find_spec("tvm") is not None:
        fork_workers(builds * len(allowed_processors()) + more, serve_forked, __name__, *_COMPILER)


def start_ahead() -> AbstractContextManager[None]:
    """Start the processes that will run :func:`attempt`, one a processor, in a host's process, which may not fork."""
    return workers_ahead(len(allowed_processors()), __name__, *_COMPILER)


def attempt(task: Attempt) -> BuiltKernel | None:
    """Compile a way and check it, in a worker; return None if a schedule to be taken over does not fit, or is the default.

    Raises
    ------
    TvmconvError
        If it does not compile.
    VerificationError
        If the kernel's answer differs from the reference.
    """
    job, way = task.job, task.way
    path = Path(job.folder) / task.file
    path.parent.mkdir(exist_ok=True)
    kernel = _compile(job, way, path)
    if kernel is None:
        return None
    tuned = way.record if way.origin == "tuned" else None
    entry = Entry(
        signature=job.decision.signature,
        target=job.target.name,
        algorithm=kernel.algorithm,
        definition_version=kernel.version,
        numerical_class=kernel.numerical_class,
        origin=way.origin,
        file=task.file,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        symbol=kernel.symbol,
        packed_filter=kernel.packed_filter,
        workspace_bytes=kernel.workspace_bytes,
        measured=_measurements(tuned) if tuned else None,
        error=None,
        transferred_from=way.record.signature if way.record and not tuned else None,
    )
    if job.check:
        with stage("verify"):
            answer = check_kernel(KernelCheck(bundle_of(job), entry, job.sizes))
        if answer.wrong:
            raise VerificationError(f"its kernel is wrong: {answer.wrong}")
        entry = answer.recorded(entry)
    if not job.keep_functions:
        return BuiltKernel(entry)
    from tvm.ir import save_json

    with stage("write"):
        return BuiltKernel(entry, save_json(kernel.functions), kernel.code)


def bundle_of(job: Job) -> Bundle:
    """Return the folder of a job, which has no manifest yet, as a bundle."""
    return Bundle(Path(job.folder), __version__, "", None, {job.target.name: bundle_target(job.target)}, ())


def bundle_target(target: Target) -> BundleTarget:
    """Return a target's entry in the manifest."""
    return BundleTarget(target.kind, target.features)


def _candidate_for(job: Job, way: Way) -> Candidate | None:
    """Return the schedule of a way that has a record; None if it is another problem's that does not fit, or the default."""
    from ..tuning.replay import spaces_of
    from ..tuning.transfer import adapt

    assert way.record is not None and isinstance(job.problem, Problem)
    if way.origin != "transferred":
        return way.record.candidate
    spaces = spaces_of(job.problem, job.target, job.decision.math, only=way.algorithm)
    candidate = adapt(way.record.candidate, spaces)
    default = next(each.algorithm for each in job.decision.ways if each.record is None)
    first = next((each for each in spaces if each.algorithm == default), None)
    return None if first is not None and candidate == first.defaults[0] else candidate


def _compile(job: Job, way: Way, path: Path) -> CompiledKernel | None:
    with stage("import"):
        from ..lowering.compiler import Choice, compile_problem
        from ..lowering.cpu.family import write_family
        from ..tuning.replay import TVM_ERRORS, compile_candidate

    problem, target = job.problem, job.target
    if way.record is not None:
        assert isinstance(problem, Problem)
        candidate = _candidate_for(job, way)
        return (
            None
            if candidate is None
            else compile_candidate(
                problem, target, candidate, path, job.entry_points, job.keep_functions, job.next_lines
            )
        )
    try:
        if isinstance(problem, ProblemFamily):
            assert isinstance(target, CpuTarget)
            return write_family(problem, target, path, way.algorithm, way.blocks)
        choice = Choice(way.algorithm)
        return compile_problem(
            problem,
            target,
            path,
            choice=choice,
            entry_points=job.entry_points,
            apart=job.keep_functions,
            next_lines=job.next_lines,
        )
    except TVM_ERRORS as error:
        if isinstance(error, TvmconvError):
            raise
        raise CompilationError(f"it does not compile: {type(error).__name__}: {last_line(error)}") from error


def _measurements(record: Record) -> dict[str, Any]:
    return {"seconds": record.seconds, "machine": record.machine, "trials": record.trials}


def _reason(error: TvmconvError, way: Way) -> str:
    """Return why a way is skipped, in one line: the first line of the error and the last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ... ".join(dict.fromkeys([lines[0], lines[-1]])) if lines else type(error).__name__
    what = {"tuned": "its tuning record: ", "transferred": f"the schedule of {way.record and way.record.signature}: "}
    reason, half = what.get(way.origin, "") + text, LONGEST_REASON // 2
    return reason if len(reason) <= LONGEST_REASON else f"{reason[:half]} ... {reason[-half:]}"
