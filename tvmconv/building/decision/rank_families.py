"""Choose the algorithm of a family, of all sizes that it is for, and its blocks.

For each of some sizes, the estimate of an algorithm's blocks is compared with that of the best kernel of just that size. The algorithm of
the least mean of these ratios is the best: no size counts more because its calls take longer, and a size that would take three times
as long weighs more than one that gains little.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...algorithms.algorithm import Algorithm
from ...algorithms.table import applicable, get
from ...family import ProblemFamily
from ...lowering.cpu.blocks import choose_blocks, from_memory, images_of, largest_block
from ...lowering.cpu.cover import Covers, Shape
from ...problem import Problem
from ...targets.target import CpuTarget


def rank_family(
    family: ProblemFamily, target: CpuTarget, math: str, sizes: Sequence[Problem] = (), cold: bool = False
) -> dict[str, tuple[Shape, ...]]:
    """Return the algorithms that compute a family's largest block, the best first, and the outputs of their blocks.

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
    images = [images_of(family, each) for each in listed]
    blocks = {each.name: choose_blocks(family, target, each, sizes) for each in applicable(largest, target, math)}

    def ratio(algorithm: Algorithm) -> float:
        size, costs = algorithm.filter_bytes(largest, target), list(blocks[algorithm.name].items())
        once = from_memory(largest, size, target) if cold and target.keeps(size) else 0
        covers = Covers(costs, [outputs for outputs, _ in images]).cycles(range(len(costs)))
        return sum((count * each + once) / least for (_, count), each, least in zip(images, covers, best, strict=True))

    able = [get(name) for name, found in blocks.items() if found]
    ranked = sorted(able, key=lambda each: (not each.is_default, ratio(each)))
    return {each.name: tuple(blocks[each.name]) for each in ranked}


def _alone(algorithm: Algorithm, problem: Problem, target: CpuTarget, cold: bool) -> float:
    size = algorithm.filter_bytes(problem, target)
    is_read = cold or not target.keeps(size)
    return algorithm.cycles(problem, target) + (from_memory(problem, size, target) if is_read else 0)
