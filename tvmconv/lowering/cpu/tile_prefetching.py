"""The next block's filter prefetched while tiles are multiplied with this one's.

A load of a tile that comes from the third level cache takes 125 cycles (one core of a Granite Rapids), in which its 4 products
take 70: where a block has few pixels, filters are what a kernel waits for. A space asks for it on the loop over blocks of
pixels (PREFETCH_NEXT), inside of that over blocks of outputs: each step of a sum prefetches its part of the lines that the same
step of the next block loads.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ...algorithms.annotations import PAIRS, PREFETCH_NEXT, ROLE, TILES, VECTORS
from .prefetching import SECOND_LEVEL, prefetch
from .rewrites import answered, mapped, refuse, replaced, rewritten
from .tile_nests import nest_of


def prefetch_tiles(body: Any) -> Any:
    """Return the statement with prefetches in the sums of loops that ask for PREFETCH_NEXT."""
    return rewritten(body, PREFETCH_NEXT, _prefetched)


def _prefetched(pixels: Any) -> Any:
    sums = 0

    def also(loop: Any) -> Any:
        nonlocal sums
        if loop.annotations.get(ROLE) != TILES:
            return loop
        loops, body = nest_of(loop)
        if PAIRS not in loops:
            return loop
        sums += 1
        weight, (vectors, depth) = body.value.b.args[2], (int(loops[role].extent) for role in (VECTORS, PAIRS))
        first = {each.loop_var: each.min for each in loops.values()}
        group, block, *others = (replaced(index, first) for index in weight.indices)
        share = -(-vectors * depth // int(pixels.extent))
        lines = [pixels.loop_var * share + number for number in range(share)]
        # Behind the others the indices are the tile, the pair and the lane: a line is a pair's.
        places = [[group, block + 1, *others[:-3], line // depth, line % depth, 0] for line in lines]
        return tirx.SeqStmt([*(prefetch(tirx.BufferLoad(weight.source, at), SECOND_LEVEL) for at in places), loop])

    body = mapped(pixels.body, tirx.For, also)
    if not sums:
        refuse(pixels, PREFETCH_NEXT, "it multiplies no tiles")
    return answered(pixels, PREFETCH_NEXT, body)
