"""Build a bundle: a kernel for every problem and target, compiled, checked, and written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import subprocess
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__
from .algorithms import check_math
from .bundle import MANIFEST, Bundle, BundleTarget, Entry, read_bundle, write_manifest
from .cuda_target import CudaTarget
from .errors import BundleError, InvalidProblemError, TargetError, TvmconvWarning, VerificationError, missing_extra
from .folders import link_or_copy, locked, move_into_place, staging
from .nvcc import check_nvcc
from .problem import Problem
from .records import Record, Records
from .selection import obstacle
from .signature import format_signature
from .target import Target
from .transfer import adapt, donor
from .verify import Check, check_kernel
from .workers import run_all

if TYPE_CHECKING:
    from .compiler import CompiledKernel
    from .tuner import TuneProgress

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Job:
    """Compile `problem` for `target`, by `record` if there is one, into the bundle `folder`; check it if asked to.

    Without a record it takes over the schedule of `like`, another problem's record, if there is one.
    """

    problem: Problem
    target: Target
    math: str
    record: Record | None
    folder: str
    check: bool
    like: Record | None = None

    def __str__(self) -> str:
        return f"{format_signature(self.problem)} for {self.target.name}"


def build(
    problems: Iterable[Problem],
    path: str | os.PathLike[str],
    target: str | Sequence[str] = "host",
    trials: int = 0,
    seconds: float | None = None,
    *,
    math: str = "default",
    jobs: int | None = None,
    verify: bool = True,
    records: Records | None = None,
    transfer: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Build kernels for `problems` into the bundle at `path`.

    A bundle that is already there keeps its other kernels. It is replaced whole once all kernels are compiled
    and right: nothing is left half done, and who opens it meanwhile sees the old or the new one.

    Parameters
    ----------
    problems
        What to build; equal problems are built once.
    path
        The bundle's folder. Missing parents are made.
    target
        ``"host"``, an LLVM CPU name such as ``"x86-64-v4"``, GPU architectures such as ``"cuda:sm_80,sm_90"``, or
        several of them for a bundle with variants.
    trials, seconds
        Tune first, for this many schedules of each problem or for this time in all (see :func:`tvmconv.tuner.tune`).
        With neither, the best known record of a problem is used, else the default schedule of its best algorithm.
    math
        ``"strict"``: only algorithms whose answer differs from the formula in the order of the sum alone.
        ``"default"``: also transforms (Winograd), whose measured error the manifest tells. ``"tf32"``: on GPUs also
        f32 by tensor cores, which round factors to TF32.
    jobs
        Number of processes that compile; absent: one for each core this process may use.
    verify
        Compare each kernel that this machine can run with the reference.
    records
        The tuning records; absent: the user's and those that ship with tvmconv.
    transfer
        Give problems without a record the schedule of the nearest problem that has one (see `tvmconv.transfer`),
        rather than the default schedule.
    progress
        Called as ``progress(done, total, what)`` while compiling.

    Returns
    -------
    Path
        The bundle's folder.

    Raises
    ------
    MissingExtraError
        If the compiler is not installed.
    InvalidProblemError
        If there is no problem.
    TvmconvError
        If `math` is not ``"default"``, ``"strict"`` or ``"tf32"``.
    TargetError
        If a target is unknown, or this machine cannot tune for it.
    ToolchainError
        If there is no C compiler or, for CUDA targets, no nvcc that knows the architectures.
    BundleError
        If there is something else at `path`, or a bundle of other versions.
    VerificationError
        If a kernel computes something else than the reference.
    WorkerDiedError
        If the compiler or a kernel crashes; it names the problem.
    """
    problems = list(dict.fromkeys(problems))
    if not problems:
        raise InvalidProblemError("there is no problem to build; give at least one")
    check_math(math)
    path = Path(path).absolute()
    _check_replaceable(path)
    targets = parse_targets(target)
    for each in targets:
        if isinstance(each, CudaTarget):
            check_nvcc(each)  # before time is spent on others
    records = records or Records()
    if trials or seconds:
        tune_for(targets, problems, trials, seconds, records, math)
    path.parent.mkdir(parents=True, exist_ok=True)
    with staging(path) as folder:
        work = [
            Job(
                problem,
                each,
                math,
                records.best(problem, each, math),
                str(folder),
                verify and obstacle(_bundle_target(each)) is None,
                donor(problem, each, math, winners),
            )
            for each, winners in ((each, records.winners(each, math) if transfer else []) for each in targets)
            for problem in problems
        ]
        _finish(folder, path, targets, _compile(work, jobs, progress))
    return path


def parse_targets(target: str | Sequence[str]) -> list[Target]:
    """Return the distinct targets that one name, or several, stand for.

    Raises
    ------
    MissingExtraError
        If the compiler, which knows the names, is not installed.
    TargetError
        If a name is unknown, or there is none.
    """
    if find_spec("tvm") is None:
        raise missing_extra("compile", "tvm")
    names = [target] if isinstance(target, str) else target
    if not names:
        raise TargetError("there is no target to build for; give at least one, for example host")
    return list({parsed.name: parsed for parsed in map(Target.parse, names)}.values())


def tune_for(
    targets: Sequence[Target],
    problems: Sequence[Problem],
    trials: int,
    seconds: float | None,
    records: Records,
    math: str = "default",
    progress: Callable[[TuneProgress], None] | None = None,
) -> None:
    """Tune `problems` for each of the targets, for an equal part of the time (see :func:`tvmconv.tuner.tune`)."""
    from .tuner import tune
    from .tuning_machine import check_tunable

    for target in targets:
        check_tunable(target)  # all of them, before time is spent on the first
    share = seconds / len(targets) if seconds else None
    for target in targets:
        tune(problems, target, trials=trials or None, seconds=share, math=math, records=records, progress=progress)


def _compile(work: list[Job], jobs: int | None, progress: Progress | None) -> list[Entry]:
    """Run the jobs, each in one of `jobs` processes, and return their entries."""
    cores = len(os.sched_getaffinity(0))
    jobs = jobs or cores
    entries = []
    for job, (entry, messages) in run_all(compile_job, work, jobs, threads=max(cores // jobs, 1)):
        entries.append(entry)
        for message in messages:
            warnings.warn(message, TvmconvWarning, stacklevel=3)
        if progress is not None:
            progress(len(entries), len(work), str(job))
    return entries


def compile_job(job: Job) -> tuple[Entry, list[str]]:
    """Do one job, in a worker; return its entry and what there is to warn about.

    Raises
    ------
    VerificationError
        If the kernel's answer differs from the reference.
    """
    signature = format_signature(job.problem)
    file = f"{job.target.folder}/{signature}.so"
    path = Path(job.folder) / file
    path.parent.mkdir(exist_ok=True)
    kernel, origin, messages = _compile_best(job, path)
    entry = Entry(
        signature=signature,
        target=job.target.name,
        algorithm=kernel.algorithm,
        definition_version=kernel.version,
        numerical_class=kernel.numerical_class,
        origin=origin,
        file=file,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        symbol=kernel.symbol,
        packed_filter=kernel.packed_filter,
        workspace_bytes=kernel.workspace_bytes,
        measured=_measured(job.record) if job.record and origin == "tuned" else None,
        error=None,
        transferred_from=job.like.signature if job.like and origin == "transferred" else None,
    )
    if job.check:
        answer = check_kernel(Check(_bundle(Path(job.folder), [job.target]), entry))
        if answer.wrong:
            raise VerificationError(f"{job}: the kernel is wrong: {answer.wrong}")
        entry = replace(entry, error={"measure": answer.measure, "value": answer.value})
    return entry, messages


def _compile_best(job: Job, path: Path) -> tuple[CompiledKernel, str, list[str]]:
    """Compile by the record, else by what may be taken over, else by default; say which, and what to warn about."""
    from .compiler import compile_problem, default_choice
    from .replay import compile_candidate, compile_recorded, spaces_of

    messages: list[str] = []
    if job.record is not None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TvmconvWarning)
            kernel = compile_recorded(job.problem, job.target, job.record, path)
        messages = [str(warning.message) for warning in caught]
        if kernel is not None:
            return kernel, "tuned", messages
    if job.like is not None:
        spaces = spaces_of(job.problem, job.target, job.math)
        candidate = adapt(job.like.candidate, spaces)
        if candidate is not None and candidate != spaces[0].defaults[0]:
            return compile_candidate(job.problem, job.target, candidate, path), "transferred", messages
    choice = default_choice(job.problem, job.target, job.math)
    return compile_problem(job.problem, job.target, path, choice=choice), "default", messages


def _measured(record: Record) -> dict[str, Any]:
    return {"seconds": record.seconds, "machine": record.machine, "trials": record.trials}


def _check_replaceable(path: Path) -> None:
    """Refuse a path that holds anything but a bundle or an empty folder."""
    if path.is_dir() and not path.is_symlink():
        if (path / MANIFEST).is_file() or not any(path.iterdir()):
            return
    elif not path.exists() and not path.is_symlink():
        return
    raise BundleError(f"{path} exists and is not a bundle, so it will not be replaced; give another path or remove it")


def _finish(folder: Path, path: Path, targets: Iterable[Target], entries: list[Entry]) -> None:
    """Write the manifest in `folder`, with what a bundle at `path` holds besides, and put it at `path`."""
    bundle = _bundle(folder, targets, entries)
    # Another build may add to the same bundle meanwhile.
    with locked(path.parent):
        _check_replaceable(path)
        if (path / MANIFEST).exists():
            bundle = _merged(bundle, read_bundle(path))
        write_manifest(bundle)
        move_into_place(folder, path)


def _bundle(folder: Path, targets: Iterable[Target], entries: Iterable[Entry] = ()) -> Bundle:
    return Bundle(
        path=folder,
        tvmconv=__version__,
        tvm=version("apache-tvm"),
        source_commit=_source_commit(),
        targets={target.name: _bundle_target(target) for target in targets},
        entries=tuple(entries),
    )


def _bundle_target(target: Target) -> BundleTarget:
    return BundleTarget(target.kind, target.features)


def _merged(new: Bundle, old: Bundle) -> Bundle:
    """Return `new` with the other kernels of `old`, whose libraries are linked into the folder of `new`.

    Raises
    ------
    BundleError
        If they are of other versions, or of another target of the same name.
    """
    for what, built, there in (("tvmconv", new.tvmconv, old.tvmconv), ("TVM", new.tvm, old.tvm)):
        if built != there:
            raise BundleError(
                f"{old.path} was built by {what} {there} and this is {built}; build into another folder, or remove it first"
            )
    for name in new.targets.keys() & old.targets.keys():
        if new.targets[name] != old.targets[name]:
            raise BundleError(
                f"{old.path} has kernels for a {name} with other CPU features than are built for now; build into another folder"
            )
    built_now = {(entry.signature, entry.target) for entry in new.entries}
    kept = tuple(entry for entry in old.entries if (entry.signature, entry.target) not in built_now)
    for entry in kept:
        library = new.path / entry.file
        library.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(old.path / entry.file, library)
    return replace(
        new,
        source_commit=new.source_commit if new.source_commit == old.source_commit else None,
        targets={**{entry.target: old.targets[entry.target] for entry in kept}, **new.targets},
        entries=(*new.entries, *kept),
    )


@cache
def _source_commit() -> str | None:
    """Return the commit of the checkout that this package is, None if it is none."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "--no-optional-locks", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or a checkout it does not trust
        return None
    return done.stdout.strip()
