"""Choose the algorithm of a family and its blocks, over all its sizes.

For each of some sizes, the estimate of an algorithm's blocks is compared with that of the best kernel of just that size. The algorithm of
the least mean of these ratios is the best: no size counts more because its calls take longer, and a size that would take three times
as long weighs more than one that gains little.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ...algorithms.algorithm import Algorithm
from ...algorithms.table import applicable, get
from ...family import ProblemFamily
from ...lowering.cpu.blocks import (
    BlockCost,
    candidates,
    choose_blocks,
    cover_by,
    from_memory,
    images_of,
    largest_block,
    outputs_between,
    reach_of,
    typical_outputs,
)
from ...lowering.cpu.cover import Reach, Shape
from ...problem import Problem
from ...targets.target import CpuTarget

# Algorithm and outputs along each axis of each block.
Blocks = tuple[tuple[str, Shape], ...]
# Number of algorithms tried beside the best, and the least part of the mean time that their blocks must save: less is within an estimate's
# error, and each packed filter takes memory.
_BESIDE, _GAIN = 3, 0.1


def rank_family(
    family: ProblemFamily,
    target: CpuTarget,
    math: str,
    sizes: Sequence[Problem] = (),
    cold: bool = False,
    joined: bool = False,
) -> dict[str, Blocks]:
    """Return the algorithms that compute a family's largest block, the best first, and their blocks.

    Parameters
    ----------
    sizes
        Problems that it is chosen for; empty: some of its ranges, small and large (`ProblemFamily.sizes`).
    cold
        Whether filters come from memory, as in a network that is too large for caches.
    joined
        Whether the best may have blocks of another algorithm beside its own, with a packed filter of their own.
    """
    largest = largest_block(family, target)
    listed = [each for each in sizes or family.sizes() if not each.is_constant]
    best = [min(_alone(each, size, target, cold) for each in applicable(size, target, math)) for size in listed]
    images = [images_of(family, each) for each in listed]
    outputs = outputs_between([each for each, _ in images]) if sizes else typical_outputs(family)
    reach = reach_of(family)
    able = {each.name: candidates(family, target, each) for each in applicable(largest, target, math)}
    blocks = {name: choose_blocks(each, outputs, reach) for name, each in able.items() if each}

    def ratio(algorithm: Algorithm) -> float:
        size = algorithm.filter_bytes(largest, target)
        once = from_memory(largest, size, target) if cold and target.keeps(size) else 0
        covers = cover_by(blocks[algorithm.name], [each for each, _ in images], reach)
        return sum((count * each + once) / least for (_, count), each, least in zip(images, covers, best, strict=True))

    ranked = [each.name for each in sorted(map(get, blocks), key=lambda each: (not each.is_default, ratio(each)))]
    # Filters of other types are packed to several types.
    if joined and family.dtype == "f32" and ranked:
        blocks[ranked[0]] = _join(blocks[ranked[0]], [able[name] for name in ranked], outputs, reach)
    return {name: tuple((each.algorithm, each.outputs) for each in blocks[name]) for name in ranked}


def _join(
    own: list[BlockCost], able: Sequence[list[BlockCost]], outputs: Sequence[Shape], reach: Reach | None
) -> list[BlockCost]:
    """Return a family's blocks by the first of the algorithms in `able`, or by it and another one."""
    alone = cover_by(own, outputs, reach)
    pairs = [choose_blocks([*able[0], *other], outputs, reach) for other in islice(able, 1, 1 + _BESIDE)]
    means = [float((cover_by(each, outputs, reach) / alone).mean()) for each in pairs]
    found = min(zip(means, pairs, strict=True), key=lambda each: each[0], default=(1.0, own))
    return found[1] if found[0] < 1 - _GAIN else own


def _alone(algorithm: Algorithm, problem: Problem, target: CpuTarget, cold: bool) -> float:
    size = algorithm.filter_bytes(problem, target)
    is_read = cold or not target.keeps(size)
    return algorithm.cycles(problem, target) + (from_memory(problem, size, target) if is_read else 0)
