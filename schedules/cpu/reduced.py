"""Search space of windows whose lanes run along the channels that are summed, on CPUs: few output channels.

A tile is some pixels of a row by all output channels. Each step of the reduction loads a vector of channels of every
pixel and one of the filter for every output channel. The lanes of the sums are added in registers.
A task is some rows.
"""

from __future__ import annotations

from tvm.s_tir import Schedule

from tvmconv.algorithms.annotations import PACK
from tvmconv.algorithms.cpu.model.tasks import task_rows
from tvmconv.algorithms.cpu.reduced import TWELVE, packs_filter, widths
from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import ACC, FILTER_PACK, LANE_SUMS, OUT, TILE, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.targets.target import CpuTarget

# Vectors of channels from which two are unrolled: of four, LLVM makes a loop of four times four, and spills. Transposed 4x4, 128
# channels 41 and 82, 256 84 and 85.
LONG_SUM = 16


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each number of pixels in a tile, the default first."""
    return steps.sketches(sch, definition, target, lambda window: widths(window, target)[:3], _schedule)


def _schedule(sch: Schedule, window: Window, width: int, target: CpuTarget) -> None:
    i, lanes, rank = window.index, window.lanes, len(window.axes)
    rows, most = task_rows(window, window.lanes)
    # Up to 4 steps unrolled: 64 channels.
    unrolls = divisors(window.channels // lanes, 4)
    unroll = unrolls[-1]
    if width * window.outputs == TWELVE and window.channels // lanes >= LONG_SUM:
        unroll = max(each for each in unrolls if each <= 2)

    acc = sch.get_sblock(stage_name(ACC, i))
    sch.set_scope(acc, 0, "local")
    n, g, *loops, o, high, low = sch.get_loops(acc)[: 5 + 2 * rank]
    phases, spatial = loops[:rank], loops[rank:]
    *taps, c = sch.get_loops(acc)[5 + 2 * rank :]

    run, x = sch.split(spatial[-1], [None, width])
    step, unrolled = sch.split(c, [None, steps.choose(sch, unrolls, unroll)])
    if rank > 1:
        band, row = sch.split(spatial[-2], [None, steps.choose(sch, rows, most)])
        outer, inner = [n, g, *spatial[:-2], band], [*phases, row, run]
    else:
        outer, inner = [n, g, run], phases
    sch.reorder(*outer, *inner, *taps, step, unrolled, x, o, high, low)
    lane = sch.fuse(high, low)
    task = sch.fuse(*outer)
    sch.parallel(task)

    if packs_filter(window):
        *loops, packed_lane = sch.get_loops(sch.get_sblock(stage_name(FILTER_PACK, i)))
        sch.parallel(sch.fuse(*loops[:2]))
        sch.annotate(packed_lane, PACK, 1)
    steps.stage_data(sch, window, task if rank > 1 else None, target)
    # A tile's sums are added up together: their chains of additions overlap.
    partial = sch.get_sblock(stage_name(LANE_SUMS, i))
    sch.set_scope(partial, 0, "local")
    sch.reverse_compute_at(partial, inner[-1], preserve_unit_loops=True)
    *_, pixel, channel, four, part = sch.get_loops(partial)
    sch.reorder(part, four)
    for loop in (pixel, channel, part):
        sch.unroll(loop)
    sch.vectorize(four)
    tile = sch.get_sblock(stage_name(TILE, i))
    sch.set_scope(tile, 0, "local")
    sch.reverse_compute_at(tile, inner[-1], preserve_unit_loops=True)
    for loop in sch.get_loops(tile)[-3:]:
        sch.unroll(loop)
    out = sch.get_sblock(stage_name(OUT, i))
    sch.reverse_compute_at(out, inner[-1], preserve_unit_loops=True)
    for loop in sch.get_loops(out)[-2:]:
        sch.unroll(loop)
    sch.vectorize(lane)
    for loop in (unrolled, x, o):
        sch.unroll(loop)
    sch.decompose_reduction(acc, taps[0])
    steps.skip_padding(sch, window, x, lane)
    steps.offer_each(sch, inner)
