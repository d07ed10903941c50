"""Prefetch filters that no cache keeps while earlier parts are multiplied.

PREFETCH, on the loop over a sum's channels: each step prefetches what a later step reads of the packed copy of the filter. Hardware
prefetchers fail on the many streams of a tile's pixels, and stop at page boundaries.

PREFETCH_NEXT, on the loop over blocks of output channels: the sums of all tiles of a block prefetch equal parts of the next block's filter.
Otherwise the first tile waits for memory, and memory is idle during the others.

Both requests name the copy, and its axis of channels (`annotations.copy_of_filter`).
"""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from ....algorithms.annotations import PREFETCH, PREFETCH_NEXT
from ...common.rewrites import find_all, map_nodes, refuse, rewrite_loops, settle, substitute

# Distance of a prefetch ahead of its use, in bytes.
DISTANCE = 16 * 1024
_READ, L2, _ALL_LEVELS, _DATA = 0, 2, 3, 1  # as LLVM numbers them


def prefetch_filters(body: Any) -> Any:
    """Return the statement with prefetches in the loops that request PREFETCH or PREFETCH_NEXT."""
    return rewrite_loops(rewrite_loops(body, PREFETCH, _prefetch_copy), PREFETCH_NEXT, _next_prefetched)


def _prefetch_copy(loop: Any) -> Any:
    name, channels = _asked_for(loop, PREFETCH)
    load, loops = _filter_load(loop.body, name), find_all(loop.body, tirx.For)
    if load is None:
        refuse(loop, PREFETCH, f"it does not read {name}")
    used = tirx.analysis.undefined_vars(load, [])
    inner = [each for each in loops if any(each.loop_var.same_as(var) for var in used)]
    # After the last channel of a tap comes the next tap's first; a prefetch beyond the end of the array is harmless.
    row = prod(int(extent) for extent in load.source.shape[1 - channels :])
    later = tirx.BufferLoad(load.source, _further(load.indices, channels, DISTANCE // (4 * row)))
    prefetches = []
    for values in product(*(range(1 if each.kind == tirx.ForKind.VECTORIZED else int(each.extent)) for each in inner)):
        at = substitute(later, {each.loop_var: value for each, value in zip(inner, values, strict=True)})
        prefetches.append(prefetch(at, _ALL_LEVELS))
    return settle(loop, PREFETCH, tirx.SeqStmt([*prefetches, loop.body]))


def _next_prefetched(block: Any) -> Any:
    """Return a loop whose sums prefetch the next iteration's part of the copy of the filter."""
    name, channels = _asked_for(block, PREFETCH_NEXT)
    load = _filter_load(block.body, name)
    if load is None:
        refuse(block, PREFETCH_NEXT, f"it does not read {name}")
    steps = [loop for loop in find_all(block.body, tirx.For) if is_step(loop, name)]
    if not steps:  # all is unrolled
        prefetches = _prefetches(block, block.body, [], load, channels)
        return settle(block, PREFETCH_NEXT, tirx.SeqStmt([*prefetches, block.body]))

    def asking(loop: Any) -> Any:
        if not any(_same(loop, step) for step in steps):
            return loop
        around = loops_down_to(block.body, loop)
        of_step = _filter_load(loop.body, name)
        return fetching(loop, _prefetches(block, loop.body, around, of_step, channels))

    return settle(block, PREFETCH_NEXT, map_nodes(block.body, tirx.For, asking))


def _prefetches(block: Any, step: Any, around: list[Any], load: Any, channels_axis: int) -> list[Any]:
    """Return the prefetches of a step of a tile's sums inside the loops `around`: for each vector, some rows of the sums."""
    sums, inner = [_using(load, loops) for loops in (around, find_all(step, tirx.For))]
    tiles = [each for each in around if not any(_same(each, loop) for loop in sums)]
    first = {each.loop_var: 0 for each in inner}
    here = [substitute(index, first) for index in load.indices]
    start = [substitute(index, {each.loop_var: 0 for each in sums}) for index in here]
    # Along these axes of the copy, rows are in the order of the sum.
    last = len(load.indices) - channels_axis
    along = min((axis for axis, index in enumerate(load.indices) if _using(index, sums)), default=last)
    channels = _using(load.indices[last], inner)
    vectors = [
        each
        for each in inner
        if each.kind != tirx.ForKind.VECTORIZED and not any(_same(each, channel) for channel in channels)
    ]
    extents = [int(extent) for extent in load.source.shape]
    (row, share), together = number_iterations(tiles), _count(channels)
    row = row * _count(sums) * together
    for axis in range(along, last + 1):
        rest = prod(extents[axis + 1 : last + 1])
        row = row + (here[axis] - start[axis]) * rest
    following = [substitute(index, {block.loop_var: block.loop_var + 1}) for index in load.indices]
    following = [substitute(index, {each.loop_var: 0 for each in (*sums, *channels)}) for index in following]
    prefetches = []
    for values in product(*(range(int(each.extent)) for each in vectors)):
        vector = dict(zip((each.loop_var for each in vectors), values, strict=True))
        at = [substitute(substitute(index, vector), first) for index in following]
        for later in range(max(1, together // share)):
            rows = _further(_further(at, channels_axis, row // share), channels_axis, later)
            prefetches.append(prefetch(tirx.BufferLoad(load.source, rows), L2))
    return prefetches


def _count(loops: Any) -> int:
    """Return the number of iterations of a loop nest."""
    return prod(int(each.extent) for each in loops)


def _using(value: Any, loops: Any) -> list[Any]:
    """Return the loops whose variables `value` uses."""
    used = tirx.analysis.undefined_vars(value, [])
    return [each for each in loops if any(each.loop_var.same_as(var) for var in used)]


def is_step(loop: Any, name: str) -> bool:
    """Return whether a loop is the innermost loop, not unrolled, that reads the array called `name`."""
    inner = find_all(loop.body, tirx.For)
    innermost = loop.kind == tirx.ForKind.SERIAL and all(each.kind != tirx.ForKind.SERIAL for each in inner)
    return innermost and _filter_load(loop.body, name) is not None


def number_iterations(loops: Any) -> tuple[Any, int]:
    """Return the number of the current iteration of a loop nest, and the number of iterations."""
    number: Any = tirx.const(0, "int32")
    for each in loops:
        number = number * each.extent + each.loop_var
    return number, _count(loops)


def fetching(loop: Any, prefetches: list[Any]) -> Any:
    """Return a loop whose iterations begin with prefetches."""
    body = tirx.SeqStmt([*prefetches, loop.body])
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, annotations=loop.annotations)


def loops_down_to(body: Any, loop: Any) -> list[Any]:
    """Return the loops of `body` around `loop`, the outermost first, and `loop`."""
    around = [each for each in find_all(body, tirx.For) if any(_same(loop, x) for x in find_all(each, tirx.For))]
    return sorted(around, key=lambda each: -len(find_all(each.body, tirx.For)))


def _asked_for(loop: Any, request: str) -> tuple[str, int]:
    """Return the name of the copy in a request, and its axis of channels, counted from the end."""
    asked = loop.annotations[request]
    match = re.fullmatch(r"(\w+)\[-(\d+)\]", asked) if isinstance(asked, str) else None
    if match is None:
        refuse(loop, request, f"it names no copy of the filter, such as filter_pack0[-3]: {asked}")
    return match[1], int(match[2])


def _filter_load(body: Any, name: str) -> Any:
    """Return the first load of the array called `name`; None if there is none."""
    return next((each for each in find_all(body, TensorLoad) if each.source.name == name), None)


def _further(indices: Any, channels: int, rows: Any) -> list[Any]:
    """Return the indices `rows` rows of channels ahead."""
    at = len(indices) - channels
    return [*indices[:at], indices[at] + rows, *indices[at + 1 :]]


def _same(loop: Any, other: Any) -> bool:
    return bool(loop.loop_var.same_as(other.loop_var))


def prefetch(load: Any, levels: int) -> Any:
    """Return the instruction that prefetches an element into caches of these levels."""
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", tirx.address_of(load), _READ, levels, _DATA))
