"""Filters asked for ahead of their use, so that those which no cache keeps come from memory while others are multiplied.

A space asks for it on the loop over a sum's channels (PREFETCH): each step then prefetches what a later one reads of the
copy of the filter. The hardware's own prefetching loses its way among the streams of a tile's pixels, and stops at pages.

Or it asks on the loop over blocks of output channels (PREFETCH_NEXT): the sums of all tiles of a block then prefetch an
equal part each of the next block's filter. Without, the first tile waits for memory, and memory for the others.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from ...algorithms.annotations import PREFETCH, PREFETCH_NEXT
from ...algorithms.stage_names import FILTER_PACK
from .rewrites import answered, found, mapped, refuse, replaced, rewritten

# Bytes. Measured on one Zen 5 core, 4x4 outputs of 1024 to 512 channels in f32: 1.72 ms; 1.83 with 8 KiB, 9.4 without.
DISTANCE = 16 * 1024
_READ, _SECOND_LEVEL, _ALL_LEVELS, _DATA = 0, 2, 3, 1  # as LLVM numbers them


def prefetch_filters(body: Any) -> Any:
    """Return the statement with prefetches in the loops that ask for PREFETCH or PREFETCH_NEXT."""
    return rewritten(rewritten(body, PREFETCH, _prefetched), PREFETCH_NEXT, _next_prefetched)


def _prefetched(loop: Any) -> Any:
    loads, loops = found(loop.body, TensorLoad), found(loop.body, tirx.For)
    load = next((each for each in loads if each.source.name.startswith(FILTER_PACK)), None)
    if load is None:
        refuse(loop, PREFETCH, "it reads no copy of the filter")
    used = tirx.analysis.undefined_vars(load, [])
    inner = [each for each in loops if any(each.loop_var.same_as(var) for var in used)]
    # Beyond the last channel of a tap lies the next tap's first; a prefetch beyond the end of the array does nothing.
    *outer, channel, vector, lane = load.indices
    *_, vectors, lanes = (int(extent) for extent in load.source.shape)
    later = tirx.BufferLoad(load.source, [*outer, channel + DISTANCE // (4 * vectors * lanes), vector, lane])
    prefetches = []
    for values in product(*(range(1 if each.kind == tirx.ForKind.VECTORIZED else int(each.extent)) for each in inner)):
        at = replaced(later, {each.loop_var: value for each, value in zip(inner, values, strict=True)})
        prefetches.append(_prefetch(at, _ALL_LEVELS))
    return answered(loop, PREFETCH, tirx.SeqStmt([*prefetches, loop.body]))


def _next_prefetched(block: Any) -> Any:
    """Return a loop over blocks of output channels whose sums prefetch the next block's filter.

    A block's filter is one piece of its copy, [vector, phases, taps, channel, 1, lane], each row of which is a vector.
    """
    steps = [loop for loop in found(block.body, tirx.For) if _is_step(loop)]
    if not steps:
        refuse(block, PREFETCH_NEXT, "no loop within sums over the channels of a copy of the filter")

    def asking(loop: Any) -> Any:
        return _asking(block, loop) if any(_same(loop, step) for step in steps) else loop

    return answered(block, PREFETCH_NEXT, mapped(block.body, tirx.For, asking))


def _asking(block: Any, step: Any) -> Any:
    """Return a step of sums with its share of the prefetches."""
    load = _filter_load(step.body)
    around = [
        loop for loop in found(block.body, tirx.For) if any(_same(step, each) for each in found(loop.body, tirx.For))
    ]
    used = tirx.analysis.undefined_vars(load, [])
    tiles = sorted(
        (each for each in around if not _uses(used, each)), key=lambda each: -len(found(each.body, tirx.For))
    )
    inner = [each for each in found(step.body, tirx.For) if _uses(used, each)]
    first = {each.loop_var: 0 for each in inner}
    group, vector, *rest = load.indices
    extents = [int(extent) for extent in load.source.shape[2:]]
    if extents[-2] != 1:
        refuse(block, PREFETCH_NEXT, f"{extents[-2]} vectors of the filter lie together")
    vectors = prod(int(each.extent) for each in inner if _uses(tirx.analysis.undefined_vars(vector, []), each))
    channels = prod(int(each.extent) for each in inner if _uses(tirx.analysis.undefined_vars(rest[-3], []), each))
    share, row = prod(int(each.extent) for each in tiles), tirx.const(0, "int32")
    for each in tiles:
        row = row * each.extent + each.loop_var
    for index, extent in zip(rest[:-2], extents[:-2], strict=True):
        row = row * extent + replaced(index, first)
    row = row * vectors // share
    following = replaced(replaced(vector, first), {block.loop_var: block.loop_var + 1})
    zeros = [0] * (len(rest) - 3)
    prefetches = [
        _prefetch(tirx.BufferLoad(load.source, [group, following, *zeros, row + ahead, 0, 0]), _SECOND_LEVEL)
        for ahead in range(max(1, channels * vectors // share))
    ]
    body = tirx.SeqStmt([*prefetches, step.body])
    return tirx.For(step.loop_var, step.min, step.extent, step.kind, body, annotations=step.annotations)


def _is_step(loop: Any) -> bool:
    """Whether a loop is the innermost of a sum that is not unrolled."""
    inner = found(loop.body, tirx.For)
    serial = tirx.ForKind.SERIAL
    return loop.kind == serial and all(each.kind != serial for each in inner) and _filter_load(loop.body) is not None


def _filter_load(body: Any) -> Any:
    loads = found(body, TensorLoad)
    return next((each for each in loads if each.source.name.startswith(FILTER_PACK)), None)


def _uses(variables: Any, loop: Any) -> bool:
    return any(loop.loop_var.same_as(var) for var in variables)


def _same(loop: Any, other: Any) -> bool:
    return bool(loop.loop_var.same_as(other.loop_var))


def _prefetch(load: Any, levels: int) -> Any:
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", tirx.address_of(load), _READ, levels, _DATA))
