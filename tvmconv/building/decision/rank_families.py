"""Choose the algorithm of a family, of all sizes that it is for.

For each of some sizes, the estimate of an algorithm's blocks is compared with that of the best kernel of just that size. The algorithm of
the least mean of these ratios is the best: no size counts more because its calls take longer, and a size that would take three times
as long weighs more than one that gains little.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...algorithms.algorithm import Algorithm
from ...algorithms.cpu.model.cold import cold_lines
from ...algorithms.cpu.model.cost import cycles
from ...algorithms.table import applicable
from ...family import ProblemFamily
from ...lowering.cpu.cover import Costs, cover_cycles
from ...lowering.cpu.family import BLOCK_CYCLES, block_problems, is_flat, largest_block
from ...problem import Problem
from ...targets.target import CpuTarget


def rank_family(
    family: ProblemFamily, target: CpuTarget, math: str, sizes: Sequence[Problem] = (), cold: bool = False
) -> list[str]:
    """Return the names of the algorithms that compute a family's largest block, the best first.

    Parameters
    ----------
    sizes
        Problems that it is for; none: some of its ranges, small and large (`ProblemFamily.sizes`).
    cold
        Whether filters come from memory, as in a network that is too large for caches.
    """
    largest = largest_block(family, target)
    listed = [each for each in sizes or family.sizes() if not each.is_constant]
    best = [min(_alone(each, size, target, cold) for each in applicable(size, target, math)) for size in listed]

    def ratio(algorithm: Algorithm) -> float:
        problems, size = block_problems(family, target, algorithm), algorithm.filter_bytes(largest, target)
        again = 0 if target.keeps(size) else _from_memory(largest, size, target)
        once = _from_memory(largest, size, target) if cold and not again else 0
        blocks = [(each.out_spatial, algorithm.cycles(each, target) + BLOCK_CYCLES + again) for each in problems]
        return sum((_by_blocks(family, blocks, each) + once) / least for each, least in zip(listed, best, strict=True))

    ranked = sorted(applicable(largest, target, math), key=lambda each: (not each.is_default, ratio(each)))
    return [each.name for each in ranked]


def _alone(algorithm: Algorithm, problem: Problem, target: CpuTarget, cold: bool) -> float:
    size = algorithm.filter_bytes(problem, target)
    is_read = cold or not target.keeps(size)
    return algorithm.cycles(problem, target) + (_from_memory(problem, size, target) if is_read else 0)


def _by_blocks(family: ProblemFamily, blocks: Costs, problem: Problem) -> float:
    """Return the cycles of a problem by blocks, each image of its batch by itself; where pixels are only carried along, all as one row."""
    outputs, count = problem.out_spatial, problem.batch
    if is_flat(family):
        outputs = (*(1,) * (family.rank - 1), prod(outputs))
        if family.data_format == "NXC":
            outputs, count = (*outputs[:-1], outputs[-1] * count), 1
    return count * cover_cycles(blocks, outputs)


def _from_memory(problem: Problem, size: int, target: CpuTarget) -> float:
    return cycles(cold_lines(problem, size), target)
