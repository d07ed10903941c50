"""Search space of depthwise convolutions of integers by pairs of taps, on CPUs.

A task is some rows of some channels. Of a vector of channels at a time it copies its rows in 16 bits, which L1 then keeps, and walks over
tiles of a row. All pairs of taps of a tile's pixels are unrolled, so that pairs of data that neighbouring pixels share are made once.
"""

from __future__ import annotations

from tvm.s_tir import Schedule

from tvmconv.algorithms.annotations import SHUFFLE
from tvmconv.algorithms.cpu.tap_pairs import TapPairsWindow
from tvmconv.algorithms.cpu.windows.plan import GroupedPlan
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.stage_names import DATA_PAD, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.dots import import_taps
from tvmconv.targets.target import CpuTarget


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each plan of the windows, the default first."""
    return steps.schedule_plans(sch, definition, target, _schedule)


def _schedule(sch: Schedule, window: TapPairsWindow, plan: GroupedPlan, target: CpuTarget) -> None:
    i, lanes, rank = window.index, window.lanes, len(window.axes)

    acc, (n, g), (phases, spatial, o), (*taps, t) = steps.sum_in_registers(sch, window)

    chunk, block, lane = sch.split(o, [steps.choose(sch, *plan.chunks), None, lanes])
    tile, x = sch.split(spatial[-1], [None, steps.choose(sch, *plan.tiles)])
    step, unrolled = sch.split(t, [None, plan.taps_unrolled])
    if rank > 1:
        band, row = sch.split(spatial[-2], [None, steps.choose(sch, *plan.rows)])
        shared, within = [*spatial[:-2], band], [*phases, row, tile]
    else:
        shared, within = [], [*phases, tile]
    outer = [n, g, *steps.task_loops(shared, chunk, plan.rows_first)]
    sch.reorder(*outer, block, *within, *taps, step, unrolled, x, lane)
    task = sch.fuse(*outer)
    sch.parallel(task)

    steps.stage_filter(sch, window)
    copy = sch.get_sblock(stage_name(DATA_PAD, i))
    sch.compute_at(copy, block, preserve_unit_loops=True)
    _, copied = sch.split(sch.get_loops(copy)[-1], [None, lanes])
    sch.vectorize(copied)
    sch.annotate(copied, SHUFFLE, 1)
    steps.store(sch, window, within[-1], 1)
    sch.vectorize(lane)
    for loop in (unrolled, x):
        sch.unroll(loop)
    sch.decompose_reduction(acc, [*taps, step][0])
    import_taps(sch, task, lanes)
    steps.offer_outermost(sch, [block, *within])
