"""Search space of windows whose lanes run across groups, on CPUs: depthwise and small groups.

Every lane has its own data, so nothing is broadcast: a tap costs one filter vector for the tile and one
data vector for each pixel. All taps along the row are unrolled, so that neighbouring pixels, which share
data, load it once; half of the registers are left for that data. Depthwise data is read in place: padding
is skipped, not copied (tvmconv/lowering/cpu/rewrites/padding.py).

Where whole groups of several channels fill a vector, lanes find those of their group by shuffles of the vector that
holds them (tvmconv/lowering/cpu/rewrites/shuffles.py), one for each channel of a group but the first. Two multiply-adds start in a cycle,
beside two loads and a shuffle: with 3 taps in a row and 14 sums, 16 shuffled vectors and 3 of the filter serve 42
multiply-adds, so that these are the limit; with stride 2, 29 shuffled vectors.
"""

from __future__ import annotations

from tvm.s_tir import Schedule

from tvmconv.algorithms.annotations import SHUFFLE, SKIP, TAPS
from tvmconv.algorithms.cpu.windows.plan import GroupedPlan
from tvmconv.algorithms.cpu.windows.tile import reads_in_place
from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.stage_names import DATA_PAD, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.dots import import_dot
from tvmconv.targets.target import CpuTarget


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each plan of the windows, the default first."""
    return steps.schedule_plans(sch, definition, target, _schedule)


def _schedule(sch: Schedule, window: Window, plan: GroupedPlan, target: CpuTarget) -> None:
    i, lanes, rank, vectors = window.index, window.lanes, len(window.axes), plan.vectors

    acc, (n, g), (phases, spatial, o), (*taps, c) = steps.sum_in_registers(sch, window)

    chunk, block, vector, lane = sch.split(o, [steps.choose(sch, *plan.chunks), None, vectors, lanes])
    tile, x = sch.split(spatial[-1], [None, steps.choose(sch, *plan.tiles)])
    step, unrolled = sch.split(taps[-1], [None, plan.taps_unrolled])
    if rank > 1:
        band, row = sch.split(spatial[-2], [None, steps.choose(sch, *plan.rows)])
        shared, within = [*spatial[:-2], band], [row, tile]
    else:
        shared, within = [tile], []
    outer = [n, g, *steps.task_loops(shared, chunk, plan.rows_first)]
    if window.shuffles:
        # A block's filter, of several channels, stays in L1 for all rows.
        inner, reduction = [*phases, block, *within], [*taps[:-1], step]
        reduction.insert(0 if plan.channels_first else len(reduction), c)
        sch.reorder(*outer, *inner, *reduction, x, unrolled, vector, lane)
        sch.unroll(c)
    else:
        inner, reduction = [*phases, *within, block], [*taps[:-1], step]
        sch.reorder(*outer, *inner, *reduction, *([unrolled, c] if window.ordered else [c, unrolled]), x, vector, lane)
    task = sch.fuse(*outer)
    sch.parallel(task)

    steps.stage_filter(sch, window)
    inlined = window.stages_data and reads_in_place(window)
    if inlined:
        sch.compute_inline(sch.get_sblock(stage_name(DATA_PAD, i)))
    else:
        steps.stage_data(sch, window, task if rank > 1 else None, target)
    steps.store(sch, window, inner[-1], vectors)
    sch.vectorize(lane)
    for loop in (unrolled, x, vector):
        sch.unroll(loop)
    sch.decompose_reduction(acc, reduction[0])
    if inlined or window.skips_rows or window.skips_columns:
        sch.annotate(lane, SKIP, 1)
    if plan.taps_together:
        sch.annotate(step, TAPS, plan.taps_together)
    if window.shuffles:
        sch.annotate(lane, SHUFFLE, 1)
    if window.rounds or window.vnni_factor > 1:
        import_dot(sch, task, window, lanes, target)
    steps.offer_outermost(sch, inner)
