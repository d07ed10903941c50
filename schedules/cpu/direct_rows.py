"""Steps of the direct windows that read whole rows of a plain filter in place, if there are no more pixels than a tile's.

A task has some of the rows, one after the other in memory, and sums their products for all outputs: for a few rows at a time, tile
after tile, whose sums wait in L1. One thread adds the tasks' sums at the end.
"""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from tvmconv.algorithms.annotations import APART
from tvmconv.algorithms.cpu.windows.filter_parts import taps_together
from tvmconv.algorithms.cpu.windows.plan import WholeRows
from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.stage_names import ACC, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.dots import import_dot
from tvmconv.targets.target import CpuTarget


def inner_loops(sch: Schedule, sum_of_part: SBlockRV, window: Window) -> list[LoopRV]:
    """Return the loops of a part's sums within a tile: pixels, output channels, channels, and then those over taps.

    Fused taps have no loops but those of axes with a single tap.
    """
    single = sum(axis.taps == 1 for axis in window.axes)
    taps = len(window.axes) if taps_together(window) else single
    x, o, *taps_loops, c = sch.get_loops(sum_of_part)[-3 - taps :]
    return [x, o, c, *taps_loops]


def sum_whole_rows(sch: Schedule, window: Window, cut: WholeRows, target: CpuTarget) -> None:
    """Schedule a window's sums and outputs by shares of the filter's rows."""
    rank, lanes = len(window.axes), window.lanes
    acc = sch.get_sblock(stage_name(ACC, window.index))
    *taps, c = sch.get_loops(acc)[3 + 2 * rank :]
    few, c = sch.split(c, [None, cut.rows])
    share, _ = sch.split(sch.fuse(*taps, few), [cut.shares, None])
    of_share = sch.rfactor(share, 0)
    *_, part, c = sch.get_loops(of_share)
    of_part = sch.rfactor(part, 0)
    sch.set_scope(of_part, 0, "local")

    *loops, o, share, part = sch.get_loops(of_share)
    outer, spatial = loops[:-rank], loops[-rank:]
    block, vector, lane = sch.split(o, [None, cut.vectors, lanes])
    sch.reorder(share, part, *outer, block, *spatial, vector, lane)
    sch.parallel(share)
    sch.compute_at(of_part, spatial[-2] if rank > 1 else block, preserve_unit_loops=True)
    sx, so, c, *taps = inner_loops(sch, of_part, window)
    part_vector, part_lane = sch.split(so, [cut.vectors, lanes])
    sch.reorder(*taps, c, *steps.held_first(window, sx, part_vector, window.row < cut.vectors, target), part_lane)

    *outer, sum_x, o, of_shares = sch.get_loops(acc)
    block, sum_vector, sum_lane = sch.split(o, [None, cut.vectors, lanes])
    sch.reorder(*outer, block, of_shares, sum_x, sum_vector, sum_lane)
    sch.set_scope(acc, 0, "local")
    steps.store(sch, window, block, cut.vectors)

    steps.stage_data(sch, window, None, target)
    for loop in (c, sx, part_vector, spatial[-1], vector, sum_x, sum_vector):
        sch.unroll(loop)
    for loop in (lane, part_lane, sum_lane):
        sch.vectorize(loop)
    sch.annotate(c, APART, 1)
    sch.decompose_reduction(of_part, taps[0] if taps else c)
    sch.decompose_reduction(of_share, part)
    sch.decompose_reduction(acc, of_shares)
    steps.skip_padding(sch, window, sx, part_lane)
    if window.vnni_factor == 2:
        import_dot(sch, share, window, lanes, target)
