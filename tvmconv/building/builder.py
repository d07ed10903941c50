"""Build a bundle: a kernel for every problem and target, compiled, checked, and written whole or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ..algorithms.table import check_math
from ..checks import as_path, integer
from ..errors import (
    BuildError,
    BundleError,
    InvalidProblemError,
    TargetError,
    TvmconvWarning,
    missing_extra,
)
from ..family import ProblemFamily
from ..family_text import is_family
from ..lowering.code_generator import generator_of
from ..lowering.common.entry_points import EntryPoints
from ..problem import Problem, list_of
from ..runtime.bundle import MANIFEST, Bundle, Entry, check_name, read_bundle, write_manifest
from ..runtime.emulation import find_emulator
from ..runtime.processors import allowed_processors
from ..runtime.selection import obstacle
from ..signature import format_signature
from ..support.cache import open_cache
from ..support.files import LEFT
from ..support.folders import check_replaceable, follow_link, link_or_copy, lock, move_into_place, staging
from ..support.progress import Progress
from ..support.sandbox import run_all
from ..support.timing import stage
from ..support.toolchain import find_compiler
from ..targets.target import Target
from ..tuning.records import Records, records_of
from ..version import __version__
from .cache import keep, take
from .decision.decide import decide, decide_families
from .decision.next_filters import next_lines
from .decision.rank import is_cold
from .fallbacks import Job, Outcome, attempt, bundle_target, first_right
from .filters import carry_nodes
from .options import BuildOptions, complete

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..tuning.turns import TuneProgress

_BUNDLE = "a bundle"  # that a build may add to


def build(
    problems: Iterable[Problem | ProblemFamily],
    path: str | os.PathLike[str],
    target: str | Target | Sequence[str | Target] = "host",
    **options: Unpack[BuildOptions],
) -> Path:
    """Build kernels for `problems` into the bundle at `path`.

    A bundle that is already there keeps its other kernels. It is replaced whole once all kernels are compiled
    and right: nothing is left half done, and a program that opens it meanwhile sees the old or the new one. Where the first
    choice of a kernel does not compile, or is wrong, the next is taken, with a warning (see `tvmconv.building.fallbacks`).

    Parameters
    ----------
    problems
        Problems and families to build; equal ones are built once, and count more where they are tuned.
    path
        The bundle's folder. Missing parents are made.
    target
        ``"host"``, an LLVM CPU name such as ``"znver4"``, GPU architectures such as ``"cuda:sm_80,sm_90"``, a
        :class:`tvmconv.Target`, or several of them for a bundle with variants.
    **options
        By purpose, in `tvmconv.building.options`: `math` and `network` restrict the algorithms; `trials`, `seconds`,
        `records` and `transfer` are for the sources of schedules; `verify` and `fallback` for the checks of kernels; `prepacked`,
        `jobs` and `progress` for the work.

    Returns
    -------
    Path
        The bundle's folder.

    Raises
    ------
    MissingExtraError
        If the compiler is not installed.
    InvalidProblemError
        If there is no problem, or something else among them; or `jobs` is no positive number.
    InputError
        If `path` is no path, `records` are no records, or there is no such option.
    TvmconvError
        If `math` is not ``"default"``, ``"strict"``, ``"tf32"`` or ``"reproducible"``.
    TargetError
        If a target is unknown, or this machine cannot tune for it.
    ToolchainError
        If there is no C compiler or, for CUDA targets, no nvcc that knows the architectures.
    BundleError
        If `path` is something else than a bundle, or a bundle that is damaged or of other versions.
    BuildError
        If a problem has no kernel that compiles and is right. The others are written before.
    OSError
        If the bundle cannot be written, for instance because the disk is full.
    """
    asked = list(problems) if isinstance(problems, Iterable) and not isinstance(problems, str) else problems
    families = [each for each in asked if isinstance(each, ProblemFamily)] if isinstance(asked, list) else []
    given = list_of([each for each in asked if not isinstance(each, ProblemFamily)] if families else asked)
    if not given and not families:
        raise InvalidProblemError("no problem was given; give at least one")
    chosen = complete(options)
    check_math(chosen["math"])
    path = as_path("path", path)
    check_name(path)
    if check_replaceable(path, MANIFEST, _BUNDLE):
        read_bundle(path)  # fails if it is damaged
    if chosen["jobs"] is not None:
        integer("jobs", chosen["jobs"], 1)
    targets = parse_targets(target)
    place = follow_link(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    with staging(place) as folder:
        outcomes = build_kernels(given, targets, folder, chosen, families=families)
        if not chosen["fallback"]:
            _check_complete(outcomes, path, fallback=False)
        entries = [each.built.entry for each in outcomes if each.built is not None]
        if entries:
            _finish(folder, place, targets, entries)
    _check_complete(outcomes, path, fallback=True)
    return path


def build_kernels(
    problems: Sequence[Problem],
    targets: Sequence[Target],
    folder: Path,
    options: BuildOptions,
    keep_functions: bool = False,
    families: Sequence[ProblemFamily] = (),
) -> list[Outcome]:
    """Build a kernel for each distinct problem, or family, and target, as a library in `folder`; outcomes come in the order in which they are done.

    Parameters
    ----------
    problems
        Problems to build; those listed more often count more when they are tuned.
    options
        All of `tvmconv.building.options`, as `complete` returns them.
    keep_functions
        Also return the functions and objects of kernels (`BuiltKernel`), which their libraries then lack.
    families
        Families to build.
    """
    find_compiler()
    for each in targets:  # before time is spent on others
        generator_of(each).check_tools(each)
    math, network = options["math"], options["network"]
    is_tuned = bool(options["trials"] or options["seconds"])
    records = records_of(options["records"], written=is_tuned)
    if is_tuned and problems:
        tune_for(targets, problems, options["trials"], options["seconds"], records, math, network=network)
    entry_points = EntryPoints.PACKED if options["prepacked"] else EntryPoints.BOTH
    work: list[Job] = []
    for target in targets:
        with stage("choose"):
            decisions = decide(problems, target, math, records, network, options["room"], options["transfer"])
            decisions += decide_families(families, target, math, options["sizes"], network)
        following = next_lines(network, decisions, target) if keep_functions else {}
        described = bundle_target(target)
        check = options["verify"] and (obstacle(described) is None or find_emulator(described) is not None)
        is_foreign = find_emulator(described) is not None
        work += [
            Job(
                each,
                str(folder),
                check and not (is_foreign and each.is_family),
                entry_points,
                keep_functions,
                following.get(each.problem, 0),
            )
            for each in decisions
        ]
    return _compile(work, options["jobs"], options["progress"])


def parse_targets(target: str | Target | Sequence[str | Target]) -> list[Target]:
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
    names = [target] if isinstance(target, (str, Target)) else target
    if not isinstance(names, Iterable):
        raise TargetError(f"target is {target!r}; give a name, for example host, or a list of names")
    if not names:
        raise TargetError("no target was given; give at least one, for example host")
    return list({parsed.name: parsed for parsed in map(_parse, names)}.values())


def _parse(target: str | Target) -> Target:
    return target if isinstance(target, Target) else Target.parse(target)


def tune_for(
    targets: Sequence[Target],
    problems: Sequence[Problem],
    trials: int,
    seconds: float | None,
    records: Records,
    math: str = "default",
    progress: Callable[[TuneProgress], None] | None = None,
    network: Sequence[Problem] = (),
) -> None:
    """Tune `problems` for each of the targets, for an equal part of the time (see :func:`tvmconv.tuning.tuner.tune`).

    Where no cache keeps the filters of the `network` that has the problems, these are measured with cold filters.
    """
    from ..tuning.machine import check_tunable
    from ..tuning.tuner import check_budget, tune

    check_budget(trials or None, seconds or None)
    for target in targets:
        check_tunable(target)  # all of them, before time is spent on the first
    share = seconds / len(targets) if seconds else None
    for target in targets:
        tune(
            problems,
            target,
            trials=trials or None,
            seconds=share,
            math=math,
            records=records,
            progress=progress,
            cold=is_cold(network, target, math),
        )


def _compile(work: list[Job], jobs: int | None, progress: Progress | None) -> list[Outcome]:
    """Return the outcomes of jobs: from the cache, or run, each in one of `jobs` processes."""
    cores = len(allowed_processors())
    jobs = jobs or cores
    done: list[Outcome] = []
    known = open_cache()
    with stage("cache"):
        found, left = take(known, work) if known else ([], work)
    new = (_judge(outcome) for _, outcome in run_all(attempt, left, jobs, max(cores // jobs, 1), first_right))
    for outcome in chain(found, new):
        job = outcome.job
        done.append(outcome)
        if known and len(done) > len(found):
            with stage("cache"):
                keep(known, outcome)
        for skipped in outcome.skipped:
            warnings.warn(
                f"{job}: {skipped['algorithm']} is skipped: {skipped['reason']}", TvmconvWarning, stacklevel=3
            )
        if outcome.slow:
            why = f"tvmconv explain {format_signature(_typical(job))} --algorithms --target {job.target.name}"
            warnings.warn(f"{job}: slow: {outcome.slow}; {why} says why", TvmconvWarning, stacklevel=3)
        if progress is not None:
            progress(len(done), len(work), str(job))
    if known and left:
        with stage("cache"):
            known.trim()
    return done


def _typical(job: Job) -> Problem:
    return job.problem.typical if isinstance(job.problem, ProblemFamily) else job.problem


def _judge(outcome: Outcome) -> Outcome:
    """Return an outcome with why its kernel is slow by estimate, if it is; that takes as long as choosing it."""
    from .decision.slow import slow  # imports TVM, as whoever compiles does

    if outcome.built is None:
        return outcome
    return replace(outcome, slow=slow(_typical(outcome.job), outcome.job.target, outcome.built.entry.algorithm))


def _check_complete(outcomes: Sequence[Outcome], path: Path, fallback: bool) -> None:
    """Raise BuildError if a problem has no kernel or, without `fallback`, not the first that was tried."""
    failed = [each for each in outcomes if each.built is None or (each.skipped and not fallback)]
    if not failed:
        return
    reasons = ["; ".join(f"{each['algorithm']}: {each['reason']}" for each in one.skipped) for one in failed]
    lines = "".join(f"\n  {one.job}: {why}" for one, why in zip(failed, reasons, strict=True))
    written = fallback and len(failed) < len(outcomes)
    what = "have no kernel that is right" if fallback else "did not get the kernel that comes first"
    raise BuildError(
        f"{len(failed)} of {len(outcomes)} problems {what}; {f'the others are in {path}' if written else 'nothing is written'}."
        f" Please report them, with the output of `tvmconv env`:{lines}"
    )


def _finish(folder: Path, path: Path, targets: Iterable[Target], entries: list[Entry]) -> None:
    """Write the manifest in `folder`, with what a bundle at `path` holds besides, and put it at `path`."""
    bundle = _bundle(folder, targets, entries)
    for left in folder.glob(f"*/{LEFT}*"):  # by a process that died while it linked
        shutil.rmtree(left)
    # Another build may add to the same bundle meanwhile.
    with lock(path.parent):
        if check_replaceable(path, MANIFEST, _BUNDLE):
            bundle = _merge(bundle, read_bundle(path))
        write_manifest(bundle)
        move_into_place(folder, path)


def _bundle(folder: Path, targets: Iterable[Target], entries: Sequence[Entry] = ()) -> Bundle:
    return Bundle(
        path=folder,
        tvmconv=__version__,
        tvm=version("apache-tvm"),
        source_commit=_source_commit(),
        targets={target.name: bundle_target(target) for target in targets},
        entries=tuple(each for each in entries if not is_family(each.signature)),
        families=tuple(each for each in entries if is_family(each.signature)),
    )


def _merge(new: Bundle, old: Bundle) -> Bundle:
    """Return `new` with the other kernels of `old`, linked into its folder; BundleError if versions, or targets of one name, differ."""
    for what, built, there in (("tvmconv", new.tvmconv, old.tvmconv), ("TVM", new.tvm, old.tvm)):
        if built != there:
            raise BundleError(
                f"{old.path} was built by {what} {there} and this is {built}; build into another folder, or remove it first"
            )
    for name in new.targets.keys() & old.targets.keys():
        if new.targets[name] != old.targets[name]:
            raise BundleError(
                f"{old.path} has kernels for a {name} with CPU features other than those of this build; build into another folder"
            )
    built_now = {(entry.signature, entry.target) for entry in new.all_entries}
    kept = tuple(entry for entry in old.all_entries if (entry.signature, entry.target) not in built_now)
    for entry in kept:
        library = new.path / entry.file
        library.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(old.path / entry.file, library)
    return replace(
        carry_nodes(new, old),
        source_commit=new.source_commit if new.source_commit == old.source_commit else None,
        targets={**{entry.target: old.targets[entry.target] for entry in kept}, **new.targets},
        entries=(*new.entries, *(each for each in kept if not is_family(each.signature))),
        families=(*new.families, *(each for each in kept if is_family(each.signature))),
    )


@cache
def _source_commit() -> str | None:
    """Return the commit of the checkout that this package is in; None if it is in none."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "--no-optional-locks", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or a checkout it does not trust
        return None
    return done.stdout.strip()
