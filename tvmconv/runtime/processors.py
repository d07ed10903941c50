"""Count the processors that this process can keep busy; `lowering/native/processors.c` does so without Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
ALL_PROCESSORS = 8  # of which each has a thread: as in `processors.c`, which says why


def allowed_processors() -> set[int]:
    """Return the numbers of those that this process may run on, by this thread or the first; of systems that do not say, all."""
    if sys.platform == "linux":
        return max(os.sched_getaffinity(0), os.sched_getaffinity(os.getpid()), key=len)
    return set(range(os.cpu_count() or 1))


def usable_processors() -> int:
    """Return those that this process may run on, or :func:`quota`, if it is less."""
    allowed, given = len(allowed_processors()), quota()
    return allowed if given is None else min(allowed, given)


def kernel_threads() -> int:
    """Return how many threads a kernel has by default: as many as there are :func:`cores` and :func:`quota` for, or OMP_NUM_THREADS processors."""
    # OpenMP takes a list, one number for each level of nested parallelism; kernels have one level.
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    asked = int(text) if text.isascii() and text.isdigit() else 0
    if asked:
        return min(usable_processors(), asked)
    allowed, given = cores(allowed_processors()), quota()
    return allowed if given is None else min(allowed, given)


def cores(allowed: Collection[int], root: Path = _ROOT) -> int:
    """Return how many threads these processors are for: one each for up to eight; of more one of each core, but eight at least.

    Of cores that do not all do as much only the strongest count, and those of one node of memory: the one that has most.

    Parameters
    ----------
    allowed
        Numbers of the processors.
    root
        Folder with ``sys/devices/system``; a processor of which that says nothing is a core.
    """
    if len(allowed) <= ALL_PROCESSORS:
        return len(allowed)
    capacities = {each: _capacity(root, each) for each in allowed}
    if not any(
        capacities.values()
    ):  # as before Linux 6.12 on x86, which has counters of their own for cores of performance
        performance = _list(root / "sys/devices/cpu_core/cpus")
        capacities = {each: int(each in performance) for each in allowed}
    strongest = max(capacities.values())
    firsts = {
        each
        for each in allowed
        if capacities[each] == strongest and each == min(_siblings(root, each).intersection(allowed), default=each)
    }
    counts = [len(each & firsts) for each in nodes(root).values()]
    return max(ALL_PROCESSORS, max(counts, default=0) or len(firsts))


def nodes(root: Path = _ROOT) -> dict[int, set[int]]:
    """Return the processors of each node of memory that has some; none where the kernel knows no nodes."""
    folder = root / "sys/devices/system/node"
    return {each: _list(folder / f"node{each}/cpulist") for each in sorted(_list(folder / "has_cpu"))}


def _capacity(root: Path, processor: int) -> int:
    """Return how much a processor does at most, beside others; 0: the kernel does not say."""
    text = "".join(_lines(root / f"sys/devices/system/cpu/cpu{processor}/cpu_capacity"))
    return int(text) if text.isascii() and text.isdigit() else 0


def _siblings(root: Path, processor: int) -> set[int]:
    """Return the processors of a processor's core."""
    return _list(root / f"sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")


def _list(path: Path) -> set[int]:
    """Return the numbers of a list as ``0,64`` or ``0-1``."""
    ends = [each.strip().partition("-") for each in ",".join(_lines(path)).split(",") if each.strip()]
    return {number for first, _, last in ends for number in range(int(first), int(last or first) + 1)}


def quota(root: Path = _ROOT) -> int | None:
    """Return how many processors' time the control groups of this process give it, rounded up; None: as much as there is.

    Containers are limited so (``docker run --cpus``, ``resources.limits.cpu``), by version 2 of control groups or by version 1.

    Parameters
    ----------
    root
        Folder with ``proc/self/cgroup``, ``proc/self/mountinfo`` and what they name.
    """
    found = [
        processors
        for mounted, top, version in _mounts(root)
        if (group := _group(root, version)) is not None
        for folder in _hierarchy(root, mounted, top, group)
        if (processors := _limit(folder, version)) is not None
    ]
    return min(found, default=None)


def _mounts(root: Path) -> Iterator[tuple[str, str, int]]:
    """Yield where hierarchies that limit processors are mounted, which group is mounted there, and their version."""
    for line in _lines(root / "proc/self/mountinfo"):
        # Number, parent, device, root, where, options, ... - type, device, options of the file system.
        head, separator, tail = line.partition(" - ")
        before, after = head.split(), tail.split()
        if not separator or len(before) < 5 or len(after) < 3:
            continue
        if after[0] == "cgroup2":
            yield before[4], before[3], 2
        elif after[0] == "cgroup" and "cpu" in after[2].split(","):
            yield before[4], before[3], 1


def _group(root: Path, version: int) -> str | None:
    """Return the group of this process in the hierarchy of version 2, or in that of version 1 which limits processors."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if path and (controllers == "" if version == 2 else "cpu" in controllers.split(",")):
            return path
    return None


def _hierarchy(root: Path, mounted: str, top: str, group: str) -> Iterator[Path]:
    """Yield the folders of a group and of those it is in, up to what is mounted."""
    inside = PurePosixPath(group)
    # A group outside of the mounted one cannot be read; the mounted one can.
    below = inside.relative_to(top) if inside.is_relative_to(top) and ".." not in inside.parts else PurePosixPath()
    for each in (below, *below.parents):
        yield root / mounted.lstrip("/") / each


def _limit(folder: Path, version: int) -> int | None:
    """Return the processors' time that a group's limit allows, rounded up; None if it has no limit."""
    if version == 2:
        words = " ".join(_lines(folder / "cpu.max")).split()
    else:
        words = [" ".join(_lines(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):  # "max", -1
        return None
    time, period = map(int, words)
    return -(-time // period) if time and period else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []  # another system, or a hierarchy without this limit
