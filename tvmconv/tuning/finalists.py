"""The winner of a race: the default schedule, unless another is faster in nearly all placements of the arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from .search import Candidate, Space

# Relative gain below which another schedule does not win over the default one.
GAIN = 0.01
# Placements in which another schedule need not be faster.
EXCEPTIONS = 1


def ranking(
    seconds: Mapping[Candidate, Sequence[float]], spaces: Sequence[Space], again: Sequence[float]
) -> list[Candidate]:
    """Return the candidates to record: the winner, then at most one of every other algorithm.

    The others serve where the winner's algorithm cannot be used: the winner among exact algorithms, for strict math, and the best
    schedule of each other algorithm, if faster than the default one.

    Parameters
    ----------
    seconds
        Seconds of each finalist in each placement, the first finalist first.
    spaces
        Spaces of the problem, the one used with zero trials first.
    again
        Seconds of the first finalist, timed once more: the difference is the noise.
    """
    noise = noise_of(next(iter(seconds.values())), again)
    default = spaces[0].defaults[0]
    chosen = [winner(seconds, default, noise)]
    exact = [space for space in spaces if space.numerical_class == "exact"]
    names = {space.algorithm for space in exact}
    if among := {each: placed for each, placed in seconds.items() if each.algorithm in names}:
        chosen.append(winner(among, exact[0].defaults[0], noise))
    if default in seconds:
        limit = median(seconds[default])
        chosen += sorted((c for c in seconds if median(seconds[c]) < limit), key=lambda c: median(seconds[c]))
    by_algorithm: dict[str, Candidate] = {}
    for candidate in chosen:
        by_algorithm.setdefault(candidate.algorithm, candidate)
    return list(by_algorithm.values())


def winner(seconds: Mapping[Candidate, Sequence[float]], default: Candidate, noise: float) -> Candidate:
    """Return the fastest candidate that clearly beats the default; the default if none does; the fastest if the default does not work."""
    ranked = sorted(seconds, key=lambda candidate: median(seconds[candidate]))
    if default not in seconds:
        return ranked[0]
    faster = (each for each in ranked if each != default and is_faster(seconds[each], seconds[default], noise))
    return next(faster, default)


def is_faster(candidate: Sequence[float], default: Sequence[float], noise: float) -> bool:
    """Return whether a candidate beats the default by more than noise and `GAIN`, save in `EXCEPTIONS` placements."""
    margin = 1 + max(GAIN, noise)
    slower = sum(d < c * margin for c, d in zip(candidate, default, strict=True))
    return slower <= min(EXCEPTIONS, len(candidate) - 1)


def noise_of(first: Sequence[float], again: Sequence[float]) -> float:
    """Return the relative difference of two timings of one kernel, in all placements but `EXCEPTIONS`."""
    differences = sorted(abs(a / b - 1) for a, b in zip(first, again, strict=True))
    return differences[-1 - min(EXCEPTIONS, len(differences) - 1)]
