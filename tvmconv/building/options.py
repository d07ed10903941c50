"""The keywords of `tvmconv.build`, by purpose. All of them together are `BuildOptions`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypedDict

from ..errors import InputError
from ..family import ProblemFamily
from ..problem import Problem
from ..support.progress import Progress
from ..tuning.records import Records
from .decision.rank import Room


class AlgorithmOptions(TypedDict, total=False):
    """Algorithms that may be taken.

    Attributes
    ----------
    math
        ``"strict"``: only algorithms whose answer differs from the formula in the order of the sum alone.
        ``"default"`` (the default): also transforms (Winograd), whose measured error is in the manifest. ``"tf32"``: on
        GPUs also f32 by tensor cores, which round factors to TF32. ``"reproducible"``: on CPUs, only algorithms
        whose answers have the same bits on every CPU.
    network
        The layers of a network that calls these kernels in sequence, each as often as it occurs. If no cache keeps their filters
        from call to call, algorithms are compared with the time that filters take from memory, and none has a larger filter than
        the best one's (`tvmconv.building.decision.rank`).
    room
        Limit of all filters of `network`. Where transforms enlarge them beyond it, those transforms stay that save the most time for
        each byte.
    sizes
        For families: the problems by which their algorithms are chosen; absent: some of their ranges, small and large
        (`tvmconv.building.decision.rank_families`).
    """

    math: str
    network: Sequence[Problem]
    room: Room | None
    sizes: Mapping[ProblemFamily, Sequence[Problem]]


class ScheduleOptions(TypedDict, total=False):
    """Sources of schedules. Without any of these: the records, else the default of the best algorithm.

    Attributes
    ----------
    trials, seconds
        Tune first, for this many schedules of each problem or for this time in all (see :func:`tvmconv.tune`).
    records
        The tuning records, or the folder that they are in beside those that ship; absent: the user's folder.
    transfer
        Give problems without a record the schedule of the nearest problem that has one (see `tvmconv.tuning.transfer`),
        rather than the default schedule.
    """

    trials: int
    seconds: float | None
    records: Records | str | os.PathLike[str] | None
    transfer: bool


class CheckOptions(TypedDict, total=False):
    """Checks of kernels.

    Attributes
    ----------
    verify
        Compare each kernel that this machine can run, itself or by an emulator, with the reference (the default).
    fallback
        Whether the next kernel is taken, with a warning, where the first choice does not compile or is wrong (the
        default; see `tvmconv.building.fallbacks`). Otherwise that is an error, and nothing is written.
    """

    verify: bool
    fallback: bool


class WorkOptions(TypedDict, total=False):
    """Processes, progress and filters of a build.

    Attributes
    ----------
    prepacked
        Whether filters come packed, as in networks: calls with plain ones then pack, and no code of their own is compiled,
        which takes time.
    jobs
        Number of processes that compile; absent: one for each core this process may use.
    progress
        Called as ``progress(done, total, what)`` while compiling.
    """

    prepacked: bool
    jobs: int | None
    progress: Progress | None


class BuildOptions(AlgorithmOptions, ScheduleOptions, CheckOptions, WorkOptions, total=False):
    """All of them."""


_DEFAULTS = BuildOptions(
    math="default",
    network=(),
    room=None,
    sizes={},
    trials=0,
    seconds=None,
    records=None,
    transfer=False,
    verify=True,
    fallback=True,
    prepacked=False,
    jobs=None,
    progress=None,
)


def complete(options: BuildOptions) -> BuildOptions:
    """Return options with the defaults of those that are not given; InputError names one that does not exist."""
    if unknown := options.keys() - _DEFAULTS.keys():
        raise InputError(f"build has no option {', '.join(sorted(unknown))}; it has {', '.join(_DEFAULTS)}")
    return {**_DEFAULTS, **options}
