"""The primitives of the cost model: costs of events, in cycles of one core.

An algorithm counts events, by the names of their coefficients (`Counts`); an estimate is the dot product of the counts and a CPU's row of
coefficients (tvmconv/targets/costs.py). What bounds a step of a tile is not linear: `tile_step` counts it in multiply-adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....targets.costs import StepCosts
from ....targets.cpus import LINE_BYTES
from ....targets.target import CpuTarget, Target
from ...shapes import F32_BITS

# Thread counts over which an uneven share of tasks is averaged, and those for which plans are told apart that the first like about as well:
# twice as even for these is worth 4 % of the cycles.
THREADS, MANY, WORTH = (2, 4, 8), (16, 32, 64), 0.06
# Cycles of a task from which on many threads gain by smaller ones: some 5 us of a core that starts two multiply-adds each.
LEAST_TASK = 35_000
Counts = Mapping[str, float]


def total(*counts: Counts) -> dict[str, float]:
    """Return the sums of counts, by event."""
    found: dict[str, float] = {}
    for each in counts:
        for name, count in each.items():
            found[name] = found.get(name, 0.0) + count
    return found


def cycles(counts: Counts, target: Target) -> float:
    """Return the cycles of counted events: the dot product of counts and coefficients."""
    return sum(count * target.coefficient(name) for name, count in counts.items())


def multiply_add(lanes: int, target: CpuTarget) -> float:
    """Return the cycles that a multiply-add of so many lanes takes: half of a full vector takes half where one port is full."""
    narrow = target.halves_fast and 2 * lanes * F32_BITS <= target.vector_bits
    return 0.5 if narrow else 1 / target.multiply_adds


def lines(nbytes: float) -> float:
    """Return the cache lines of so many contiguous bytes."""
    return nbytes / LINE_BYTES


def tile_step(
    step: StepCosts,
    vectors: float,
    broadcasts: float,
    sums: float,
    *,
    parts: float = 0.0,
    stream: float = 0.0,
    far: bool = False,
    crowded: bool = False,
    spilled: float = 0.0,
    single: float = 0.0,
) -> float:
    """Return the cost of a step of a tile of sums, in multiply-adds of whole vectors.

    Parameters
    ----------
    step
        The coefficients.
    vectors, broadcasts, sums
        Vectors that it loads, elements that it broadcasts, and its multiply-adds.
    parts
        The vectors of the filter, as parts of whole ones.
    stream
        What such a vector takes where it passes from L2 or L3: `step.from_l2` or `step.from_l3`.
    far
        Whether vectors of data come from L2.
    crowded
        Whether data share sets of L1 with the filter.
    spilled, single
        Sums without registers; pixels of tiles of one vector that spill.
    """
    times = step.far if far else 1.0
    bound = max(sums, step.chain, step.vector * times * vectors + step.broadcast * broadcasts, stream * vectors)
    beside = step.step + step.beside_vector * times * vectors + step.beside_part * parts
    beside += (step.beside_broadcast + step.crowded * crowded) * broadcasts
    return bound + beside + step.spill * spilled + step.single * single


def most_even(counts: Sequence[int], each: int) -> int:
    """Return which of `counts` threads share best, of so many tasks for `each`; of those that are alike the largest."""
    return min(counts, key=lambda count: (imbalance(count * each), -count))


def weigh(cycles: float, tasks: int, many: bool = True) -> float:
    """Return the cycles of work in so many tasks as plans compare them: times how uneven few threads share it, and, a little, `many`."""
    return (weigh_many(cycles, tasks) if many else cycles) * imbalance(tasks)


def weigh_many(cycles: float, tasks: int) -> float:
    """Return the cycles times, a little, how uneven many threads share so many tasks, or pieces of them: as many as are worth one."""
    enough = max(1, min(tasks, int(cycles / LEAST_TASK)))
    return cycles * imbalance(enough, MANY) ** WORTH


def imbalance(tasks: int, counts: Sequence[int] = THREADS) -> float:
    """Ratio of the busiest thread's work to the average, over numbers of threads."""
    return sum(-(-tasks // threads) * threads / tasks for threads in counts) / len(counts)
