"""Search space of transposed convolutions as products with whole rows of the filter, on CPUs.

A task is all pixels by some outputs of all taps, part after part of the filter (direct_parts.py). Then tasks of output channels add up
the products of taps, some channels at a time, whose products L1 keeps meanwhile.
"""

from __future__ import annotations

from math import prod

from tvm.s_tir import Schedule

from tvmconv.algorithms.cpu.col2im import ColumnsWindow, choices_of, tile_vectors
from tvmconv.algorithms.cpu.direct_plan import MOST_CHUNKS
from tvmconv.algorithms.cpu.model.cost import most_even
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import OUT, SUM, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.direct_parts import sum_by_parts
from tvmconv.targets.target import CpuTarget


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each number of vectors of outputs in a tile, the default first."""
    return steps.sketches(sch, definition, target, lambda window: tile_vectors(window, target)[:3], _schedule)


def _schedule(sch: Schedule, window: ColumnsWindow, vectors: int, target: CpuTarget) -> None:
    sum_by_parts(sch, window, vectors, (*choices_of(window, vectors, target), None), target)
    _add_taps(sch, window, target)


def _add_taps(sch: Schedule, window: ColumnsWindow, target: CpuTarget) -> None:
    """Add the products of an output's taps, and store it."""
    out, sums = sch.get_sblock(stage_name(OUT, window.index)), sch.get_sblock(stage_name(SUM, window.index))
    channels = window.outputs_of_group
    # All taps' products of all pixels of so many channels stay in L1.
    fits = max(1, target.l1_share * 3 // 4 // (4 * prod(window.transposed.in_spatial) * window.taps))
    few = max(count for count in divisors(channels, steps.LINE_FLOATS) if count <= fits)
    chunks = divisors(channels // few, MOST_CHUNKS)
    best = most_even(chunks, window.groups)
    n, g, *places, o = sch.get_loops(out)
    chunk, block, channel = sch.split(o, [steps.choose(sch, chunks, best), None, few])
    sch.reorder(n, g, chunk, block, *places, channel)
    task = sch.fuse(n, g, chunk)
    sch.parallel(task)
    sch.compute_at(sums, places[-1], preserve_unit_loops=True)
    sch.set_scope(sums, 0, "local")
    rank = len(places) // 2
    *_, lane = sch.get_loops(sums)[:-rank]
    taps = sch.get_loops(sums)[-rank:]
    sch.reorder(*taps, lane)
    sch.vectorize(lane)
    if window.problem.data_format == "NXC":
        steps.vectorize_last(sch, channel, few)
    sch.decompose_reduction(sums, taps[0])
