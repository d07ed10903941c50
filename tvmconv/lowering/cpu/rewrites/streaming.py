"""Prefetch a plain filter in place, part by part, while the part before is multiplied.

A space requests it (PREFETCH_PART) on the loop over parts of the filter, whose iterations each copy a part and sum its products, or read
it in place; the request names the buffer that the sums read. Each step of the sums prefetches an equal share of the filter's lines that the
next iteration reads, in memory order. Otherwise a copy waits for memory, and memory is idle during the sums.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tvm import sym, tirx
from tvm.ir import TensorLoad

from ....algorithms.annotations import PREFETCH_PART
from ....algorithms.shapes import divisors
from ....algorithms.stage_names import FILTER
from ....targets.cpus import LINE_BYTES
from ...common.rewrites import find_all, map_nodes, refuse, rewrite_loops, settle, substitute
from .prefetching import L2, fetching, is_step, loops_down_to, number_iterations, prefetch


def prefetch_parts(body: Any) -> Any:
    """Return the statement with prefetches in the loops that request PREFETCH_PART."""
    return rewrite_loops(body, PREFETCH_PART, _prefetch_part)


def _prefetch_part(part: Any) -> Any:
    name = part.annotations[PREFETCH_PART]
    loads = [each for each in find_all(part.body, TensorLoad) if each.source.name == FILTER]
    if not loads:
        refuse(part, PREFETCH_PART, "it does not read the filter")
    steps = [loop for loop in find_all(part.body, tirx.For) if is_step(loop, name)]
    if not steps:
        refuse(part, PREFETCH_PART, f"no loop sums products of {name}")
    inner = {each.loop_var: int(each.extent) for each in find_all(part.body, tirx.For)}
    begin, extents = _box(part, loads, inner)
    following = [substitute(index, {part.loop_var: part.loop_var + 1}) for index in begin]

    def asking(loop: Any) -> Any:
        if not any(loop.loop_var.same_as(step.loop_var) for step in steps):
            return loop
        number, count = number_iterations(loops_down_to(part.body, loop))
        return fetching(loop, _share(loads[0].source, following, extents, number, count))

    return settle(part, PREFETCH_PART, map_nodes(part.body, tirx.For, asking))


def _box(part: Any, loads: list[Any], inner: dict[Any, int]) -> tuple[list[Any], list[int]]:
    """Return the first element and the extents of the part of the filter that an iteration reads."""
    analyzer = sym.Analyzer()
    corners = [dict.fromkeys(inner, 0), {var: extent - 1 for var, extent in inner.items()}]
    begin, reach = [], []
    for axis in range(len(loads[0].indices)):
        ends = [substitute(load.indices[axis], corner) for load in loads for corner in corners]
        places = []
        for each in ends:
            place = analyzer.simplify(substitute(each, dict.fromkeys(tirx.analysis.undefined_vars(each, []), 0)))
            if not isinstance(place, tirx.IntImm):
                refuse(part, PREFETCH_PART, f"which part of axis {axis} of the filter it reads is not known: {place}")
            places.append(int(place))
        begin.append(ends[places.index(min(places))])
        reach.append(max(places) - min(places) + 1)
    return begin, reach


def _share(source: Any, at: list[Any], extents: list[int], number: Any, count: int) -> list[Any]:
    """Return the prefetches of step `number` of `count`: cache lines of rows that are contiguous in memory.

    Lines are prefetched in pieces of a row, whose indices need one division each: the largest pieces that do not add lines.
    """
    shape = [int(extent) for extent in source.shape]
    axis, run = len(shape) - 1, extents[-1]
    while axis > 0 and extents[axis] == shape[axis]:
        axis -= 1
        run *= extents[axis]
    elements = LINE_BYTES // np.dtype(str(source.dtype)).itemsize  # bf16 is a uint16 here
    lines = -(-run // elements)
    rows = prod(extents[:axis])

    def pieces(size: int) -> int:
        return -(-rows * lines // (size * count))

    piece = min(divisors(lines, lines), key=lambda size: (pieces(size) * size, pieces(size)))
    each, of_row, fetched = pieces(piece), lines // piece, []
    for which in range(each):
        place = number * each + which
        row, rest = (place, 0) if of_row == 1 else (place // of_row, place % of_row * piece)
        indices = list(at)
        for outer in reversed(range(axis)):
            first = prod(extents[:outer]) == 1  # rows beyond the last belong to the part after the next
            indices[outer] = indices[outer] + (row if first else row % extents[outer])
            row = tirx.const(0, "int32") if first else row // extents[outer]
        for line in range(piece):
            at_line = _further(indices, shape, (rest + line) * elements)
            fetched.append(prefetch(tirx.BufferLoad(source, at_line), L2))
    return fetched


def _further(indices: list[Any], shape: list[int], elements: Any) -> list[Any]:
    """Return the indices `elements` elements ahead, carried to outer axes, since no index may exceed its extent."""
    if not isinstance(elements, int):
        return [*indices[:-1], indices[-1] + elements]
    further = list(indices)
    for axis in reversed(range(1, len(shape))):
        further[axis] = further[axis] + elements % shape[axis]
        elements //= shape[axis]
    return [further[0] + elements, *further[1:]]
