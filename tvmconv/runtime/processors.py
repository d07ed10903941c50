"""Count the processors that this process can keep busy, as `lowering/native/processors.c` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
ALL_PROCESSORS = 8  # up to so many, each has a thread: `processors.c` says why


def allowed_processors() -> set[int]:
    """Return the processors in this thread's or the main thread's affinity, the larger set; all on systems without affinity."""
    if sys.platform == "linux":
        return max(os.sched_getaffinity(0), os.sched_getaffinity(os.getpid()), key=len)
    return set(range(os.cpu_count() or 1))


def usable_processors() -> int:
    """Return the number of allowed processors, or :func:`quota` if that is less."""
    allowed, given = len(allowed_processors()), quota()
    return allowed if given is None else min(allowed, given)


def kernel_threads() -> int:
    """Return a kernel's default number of threads: the least of :func:`cores` and :func:`quota`, or of processors and OMP_NUM_THREADS."""
    # OpenMP takes a list, one number for each level of nested parallelism; kernels have one level.
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    asked = int(text) if text.isascii() and text.isdigit() else 0
    if asked:
        return min(usable_processors(), asked)
    allowed, given = cores(allowed_processors()), quota()
    return allowed if given is None else min(allowed, given)


def cores(allowed: Collection[int], root: Path = _ROOT) -> int:
    """Return the number of threads for these processors: one for each of up to eight; else one for each core, at least eight.

    On hybrid CPUs only the strongest cores count; on NUMA machines only the node with most cores.

    Parameters
    ----------
    allowed
        Numbers of the processors.
    root
        Folder with ``sys/devices/system``; a processor that is missing there counts as a core.
    """
    if len(allowed) <= ALL_PROCESSORS:
        return len(allowed)
    capacities = {each: _capacity(root, each) for each in allowed}
    if not any(capacities.values()):  # x86 before Linux 6.12: P cores have a performance monitoring unit of their own
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
    """Return the processors of each NUMA node that has any; empty without NUMA."""
    folder = root / "sys/devices/system/node"
    return {each: _list(folder / f"node{each}/cpulist") for each in sorted(_list(folder / "has_cpu"))}


def _capacity(root: Path, processor: int) -> int:
    """Return a processor's relative capacity; 0: the kernel does not report it."""
    text = "".join(_lines(root / f"sys/devices/system/cpu/cpu{processor}/cpu_capacity"))
    return int(text) if text.isascii() and text.isdigit() else 0


def _siblings(root: Path, processor: int) -> set[int]:
    """Return the processors (SMT siblings) of a processor's core."""
    return _list(root / f"sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")


def _list(path: Path) -> set[int]:
    """Return the numbers in a file's list, such as ``0,64`` or ``0-1``."""
    ends = [each.strip().partition("-") for each in ",".join(_lines(path)).split(",") if each.strip()]
    return {number for first, _, last in ends for number in range(int(first), int(last or first) + 1)}


def quota(root: Path = _ROOT) -> int | None:
    """Return the CPU quota of this process's control groups in processors, rounded up; None: there is no limit.

    Containers are limited by it (``docker run --cpus``, ``resources.limits.cpu``), in control groups of version 1 or 2.

    Parameters
    ----------
    root
        Folder with ``proc/self/cgroup``, ``proc/self/mountinfo`` and the folders that they name.
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
    """Yield the mount point, mounted group and version of each hierarchy that limits processors."""
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
    """Return this process's group in the hierarchy of version 2, or in the cpu hierarchy of version 1."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if path and (controllers == "" if version == 2 else "cpu" in controllers.split(",")):
            return path
    return None


def _hierarchy(root: Path, mounted: str, top: str, group: str) -> Iterator[Path]:
    """Yield the folders of a group and its ancestors, up to the mounted one."""
    inside = PurePosixPath(group)
    # A group outside of the mounted one cannot be read; the mounted one can.
    below = inside.relative_to(top) if inside.is_relative_to(top) and ".." not in inside.parts else PurePosixPath()
    for each in (below, *below.parents):
        yield root / mounted.lstrip("/") / each


def _limit(folder: Path, version: int) -> int | None:
    """Return a group's own limit in processors, rounded up; None if it has none."""
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
