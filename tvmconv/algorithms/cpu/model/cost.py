"""The primitives of the cost model: costs of events, in cycles of one core.

Algorithms count events by the names of their coefficients (`Counts`); an estimate is the dot product of the counts and a CPU's row of
coefficients (tvmconv/targets/costs.py). Only the bound of a tile's step is not linear: `tile_step` computes it in multiply-adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....targets.costs import StepCosts
from ....targets.cpus import LINE_BYTES
from ....targets.target import CpuTarget, Target
from ...shapes import F32_BITS

# Thread counts over which the imbalance of tasks is averaged, and larger ones that decide between otherwise similar plans: halving the
# imbalance for these is worth 4 % of the cycles.
THREADS, MANY, WORTH = (2, 4, 8), (16, 32, 64), 0.06
# Least cycles of a task from smaller ones of which many threads gain: some 5 us of a core that starts two multiply-adds per cycle.
LEAST_TASK = 35_000
Counts = Mapping[str, float]


def total(*counts: Counts) -> dict[str, float]:
    """Return the sum of counts, by event."""
    found: dict[str, float] = {}
    for each in counts:
        for name, count in each.items():
            found[name] = found.get(name, 0.0) + count
    return found


def cycles(counts: Counts, target: Target) -> float:
    """Return the cycles of counted events: the dot product of counts and coefficients."""
    return sum(count * target.coefficient(name) for name, count in counts.items())


def multiply_add(lanes: int, target: CpuTarget) -> float:
    """Return the cycles of a multiply-add of so many lanes; half a vector takes half a cycle if only one port has whole vectors."""
    narrow = target.halves_fast and 2 * lanes * F32_BITS <= target.vector_bits
    return 0.5 if narrow else 1 / target.multiply_adds


def lines(nbytes: float) -> float:
    """Return the number of cache lines of so many contiguous bytes."""
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
        Numbers of vectors that are loaded, elements that are broadcast, and multiply-adds.
    parts
        Vectors of the filter in units of whole vectors.
    stream
        Cost of a vector of the filter from L2 or L3: `step.from_l2` or `step.from_l3`; 0 from L1.
    far
        Whether vectors of data come from L2.
    crowded
        Whether data share sets of L1 with the filter.
    spilled, single
        Sums without registers; pixels of spilling tiles of one vector.
    """
    times = step.far if far else 1.0
    bound = max(sums, step.chain, step.vector * times * vectors + step.broadcast * broadcasts, stream * vectors)
    beside = step.step + step.beside_vector * times * vectors + step.beside_part * parts
    beside += (step.beside_broadcast + step.crowded * crowded) * broadcasts
    return bound + beside + step.spill * spilled + step.single * single


def most_even(counts: Sequence[int], each: int) -> int:
    """Return the count of least imbalance, for `each` tasks per unit of the count; among equals the largest."""
    return min(counts, key=lambda count: (imbalance(count * each), -count))


def weigh(cycles: float, tasks: int, many: bool = True) -> float:
    """Return the cycles of so many tasks, weighted by the imbalance of few threads and, with `many`, a little by that of many threads."""
    return (weigh_many(cycles, tasks) if many else cycles) * imbalance(tasks)


def weigh_many(cycles: float, tasks: int) -> float:
    """Return the cycles weighted a little by the imbalance of many threads, for tasks of at least LEAST_TASK."""
    enough = max(1, min(tasks, int(cycles / LEAST_TASK)))
    return cycles * imbalance(enough, MANY) ** WORTH


def imbalance(tasks: int, counts: Sequence[int] = THREADS) -> float:
    """Return the ratio of the busiest thread's work to the mean, averaged over numbers of threads."""
    return sum(-(-tasks // threads) * threads / tasks for threads in counts) / len(counts)
