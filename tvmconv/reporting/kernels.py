"""Collect a report's facts about each kernel: its entry in the manifest, and its time on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..algorithms.table import ALGORITHMS
from ..building.bench import BenchRow, time_in_turn
from ..errors import BundleError
from ..measuring.peak import MOST_SAVED, TRIES, Peak, measure_again
from ..problem import Problem
from ..runtime.bundle import Bundle, Entry
from ..runtime.selection import BACKENDS, obstacle, runnable, tables
from ..signature import parse_signature
from ..support.progress import Progress

# Ratio of two measurements of the same on one machine.
NOISE = 1.05
# Turns in which two bundles' kernels are timed, half of them in reverse order.
TURNS = 4


@dataclass(frozen=True)
class Line:
    """One kernel of a bundle.

    Attributes
    ----------
    entry
        Its entry in the manifest.
    library_bytes
        The size of its file.
    row
        Its measurement; None if it was not timed.
    untimed
        Why it was not timed, empty if it was.
    """

    entry: Entry
    library_bytes: int
    row: BenchRow | None
    untimed: str


def seconds(row: BenchRow) -> float:
    """Return the median of a call, with the filter prepacked where that is possible."""
    return (row.packed or row.timing).median


def roof(row: BenchRow, limits: Peak | None) -> float | None:
    """Return the machine's upper limit of operations a second for a kernel; None if unknown, as on GPUs.

    Bytes come from the cache: a kernel is called repeatedly on the same arrays, which seldom exceed it.
    """
    if limits is None or not BACKENDS[row.kind].has_peak:
        return None
    most = limits.of(parse_signature(row.signature).dtype)
    return most and min(most, row.flops / row.nbytes * limits.cache_bandwidth)


def confirm(limits: Peak | None, rows: Sequence[BenchRow]) -> Peak | None:
    """Measure limits again while a kernel exceeds them; return None if one always does, as on a busy machine."""
    for _ in range(TRIES):
        if limits is None or not any(_passes(row, limits) for row in rows):
            return limits
        limits = measure_again(limits.threads)
    return None


def _passes(row: BenchRow, limits: Peak) -> bool:
    """Return whether a kernel exceeds the limits by more than its algorithm saves."""
    problem = parse_signature(row.signature)
    most = limits.of(problem.dtype)
    if most is None or not BACKENDS[row.kind].has_peak:
        return False
    transforms = {each.name for each in ALGORITHMS if each.numerical_class == "transform"}
    share = 1 / MOST_SAVED if row.algorithm in transforms else _share_of_data(problem) / NOISE
    return row.flops * share / seconds(row) > most


def _share_of_data(problem: Problem) -> float:
    """Return the share of a problem's taps that read data; a kernel may skip those on padding."""
    share = 1.0
    wide, narrow = problem.in_spatial, problem.out_spatial
    if problem.op != "convolution":  # each tap goes from data to an output
        wide, narrow = narrow, wide
    for outer, inner, taps, stride, dilation, pad in zip(
        wide, narrow, problem.kernel, problem.strides, problem.dilations, problem.pads_begin, strict=True
    ):
        places = (index * stride + tap * dilation - pad for index in range(inner) for tap in range(taps))
        share *= sum(0 <= place < outer for place in places) / (inner * taps)
    return share


def opponents(bundle: Bundle, other: Bundle) -> dict[tuple[str, str], Entry]:
    """Return the kernels that a registry selects from `other` for those it selects from `bundle`, by signature and target.

    Raises
    ------
    BundleError
        If there is nothing to compare.
    """
    theirs, found = tables([other]), {}
    for device, table in tables([bundle]).items():
        for signature, (_, entry) in table.items():
            if signature in theirs.get(device, {}):
                found[signature, entry.target] = theirs[device][signature][1]
    if not found:
        raise BundleError(
            f"{other.path} has none of the {len(bundle.entries)} kernels of {bundle.path} in a variant that this machine runs;"
            f" compare bundles of the same problems (what they hold: tvmconv list {other.path})"
        )
    return found


def measure(
    bundle: Bundle, other: Bundle | None, duration: float, threads: int, progress: Progress
) -> tuple[list[Line], list[tuple[BenchRow, BenchRow]]]:
    """Time the kernels of `bundle`, in turn with those of `other` for the same problems.

    Parameters
    ----------
    duration
        Seconds to spend on each kernel, with plain and with prepacked filters each.

    Returns
    -------
    list of Line, list of (Row, Row)
        A line for every kernel of `bundle`; ours and the other's for those that both have.

    Raises
    ------
    BundleError
        If a library is missing or damaged, or `other` has nothing to compare.
    UnsupportedMachineError
        If this machine can run no kernel of `bundle`.
    """
    total, done = len(runnable(bundle)), 0
    against = opponents(bundle, other) if other is not None else {}
    obstacles = {name: obstacle(target) for name, target in bundle.targets.items()}
    lines, pairs = [], []
    for entry in bundle.entries:
        size, untimed = bundle.library(entry).stat().st_size, obstacles[entry.target]
        if untimed is not None:
            lines.append(Line(entry, size, None, untimed))
            continue
        progress(done, total, entry.signature)
        done += 1
        variants = [(bundle, entry)]
        opponent = against.get((entry.signature, entry.target))
        if other is not None and opponent is not None:
            variants.append((other, opponent))
        rows = time_in_turn(variants, duration, threads, TURNS if opponent else 1)
        lines.append(Line(entry, size, rows[0], "") if rows else Line(entry, size, None, "its output is empty"))
        pairs += [(rows[0], rows[1])] if len(rows) == 2 else []
    return lines, pairs
