"""Prefetch the next part of AMX's packed filter from L3 to L2 while one part is multiplied.

A space requests it (PREFETCH_TILES) on a loop whose iterations each multiply another part of the packed filter, which the request names.
Each step of the sums reads contiguous tiles of the filter, and prefetches an equal share of the lines of the same step of the next
iteration; each block of data multiplied by the part prefetches another share.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from ....algorithms.annotations import PREFETCH_TILES
from ...common.rewrites import find_all, map_nodes, refuse, rewrite_loops, settle, substitute
from .prefetching import L2, fetching, loops_down_to, number_iterations, prefetch


def prefetch_tiles(body: Any) -> Any:
    """Return the statement with prefetches in the loops that request PREFETCH_TILES."""
    return rewrite_loops(body, PREFETCH_TILES, _prefetch_filter)


def _prefetch_filter(part: Any) -> Any:
    name = part.annotations[PREFETCH_TILES]
    reading = [loop for loop in find_all(part.body, tirx.For) if _loads(loop.body, name)]
    steps = [loop for loop in reading if not any(_loads(each.body, name) for each in find_all(loop.body, tirx.For))]
    if not steps and _loads(part.body, name):
        steps = [part]  # all is unrolled
    if not steps:
        refuse(part, PREFETCH_TILES, f"it multiplies no tiles of {name}")

    def asking(loop: Any) -> Any:
        if not any(loop.loop_var.same_as(step.loop_var) for step in steps):
            return loop
        first, *others = _loads(loop.body, name)
        used = tirx.analysis.undefined_vars(first, [])
        around = loops_down_to(part.body, loop)
        number, count = number_iterations(
            [each for each in around if not any(each.loop_var.same_as(var) for var in used)]
        )
        *_, rows, _ = map(int, first.source.shape)
        lines = rows * len({str(each) for each in (first, *others)})
        share = -(-lines // count)
        following = [substitute(index, {part.loop_var: part.loop_var + 1}) for index in first.indices]
        at = [_further(first.source.shape, following, number * share + line) for line in range(share)]
        fetched = [prefetch(tirx.BufferLoad(first.source, indices), L2) for indices in at]
        return fetching(loop, fetched)

    if steps == [part]:
        return settle(part, PREFETCH_TILES, asking(part).body)
    return settle(part, PREFETCH_TILES, map_nodes(part.body, tirx.For, asking))


def _further(shape: Any, indices: list[Any], lines: Any) -> list[Any]:
    """Return the indices some cache lines ahead in an array whose last axis is a line."""
    *before, half, vector, pair, lane = indices
    *_, vectors, pairs, _ = map(int, shape)
    return [*before, half + lines // (vectors * pairs), vector + lines // pairs % vectors, pair + lines % pairs, lane]


def _loads(body: Any, name: str) -> list[Any]:
    """Return the loads of the array called `name`, in order."""
    return [each for each in find_all(body, TensorLoad) if each.source.name == name]
