"""The cycles of a family's blocks that cover an output, as `native/family.c` chooses them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Shape = tuple[int, ...]
# Outputs of a block along each axis, and its cycles.
Costs = Sequence[tuple[Shape, float]]


def cover_cycles(blocks: Costs, outputs: Shape) -> float:
    """Return the cycles of the cheapest cover: one region, or whole blocks of a kind and a region for what each axis has left."""
    return min(_region(blocks, outputs), *(_whole(blocks, each, outputs) for each in blocks))


def _region(blocks: Costs, extents: Shape) -> float:
    return min(cycles * prod(-(-x // y) for x, y in zip(extents, block, strict=True)) for block, cycles in blocks)


def _whole(blocks: Costs, block: tuple[Shape, float], outputs: Shape) -> float:
    sizes, cycles = block
    ends = [x // y * y for x, y in zip(outputs, sizes, strict=True)]
    if not all(ends):
        return _region(blocks, outputs)
    found = cycles * prod(end // y for end, y in zip(ends, sizes, strict=True))
    # What is left along an axis has all outputs of the axes before, and those of whole blocks of the axes behind.
    for axis, (all_, end) in enumerate(zip(outputs, ends, strict=True)):
        if all_ != end:
            found += _region(blocks, (*outputs[:axis], all_ - end, *ends[axis + 1 :]))
    return found
