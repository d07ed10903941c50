"""Search space of convolutions tap by tap, on CPUs.

A task is some of the output channels: for a few vectors of them at a time, one tap's part of the filter, which stays in
L2, multiplies all pixels that it meets; then the next tap's. The results are added up behind.
"""

from __future__ import annotations

from tvm.s_tir import Schedule

from tvmconv.algorithms.annotations import SKIP, SKIP_TILE, SOME_INSIDE
from tvmconv.algorithms.cpu.kn2row import CUT_ROWS, vector_counts, widths
from tvmconv.algorithms.cpu.model.tasks import TASKS
from tvmconv.algorithms.cpu.windows.window import Window
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.shapes import divisors, part_counts
from tvmconv.algorithms.stage_names import ACC, PARTIAL, SUM, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.dots import import_dot
from tvmconv.targets.target import CpuTarget

MOST_CHUNKS = 64  # of output channels
MAX_GATHERED = 32  # outputs of a row whose sums are together on the stack: 8 KiB of 4 vectors


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each number of vectors of channels in a tile, the default first."""
    return steps.sketches(sch, definition, target, lambda window: vector_counts(window, target)[:3], _schedule)


def _schedule(sch: Schedule, window: Window, vectors: int, target: CpuTarget) -> None:
    i, lanes = window.index, window.lanes
    tiles = widths(window, vectors, target)[:4]
    chunks = part_counts(window.padded_outputs // (lanes * vectors), MOST_CHUNKS, TASKS)
    unrolls = divisors(window.channels, 4)

    # Sum of an output over its taps.
    total, (n, g), (phases, (*rows, row), o), taps = steps.sum_in_registers(sch, window, SUM)
    chunk, block, vector, lane = sch.split(o, [steps.choose(sch, chunks, chunks[-1]), None, vectors, lanes])
    strip, x = sch.split(row, [None, divisors(window.axes[-1].outputs, MAX_GATHERED)[-1]])
    # An output's sum stays in registers where vectors are stored; else those of a strip are stored channel by channel.
    inner = [x, *taps] if window.stores_vectors else [*taps, x]
    sch.reorder(n, g, chunk, block, *phases, *rows, strip, *inner, vector, lane)
    task = sch.fuse(n, g, chunk)
    sch.parallel(task)

    # The products of a tap.
    part, acc = sch.get_sblock(stage_name(PARTIAL, i)), sch.get_sblock(stage_name(ACC, i))
    sch.set_scope(acc, 0, "local")
    sch.compute_at(part, block, preserve_unit_loops=True)
    *_, pixels, o = sch.get_loops(part)
    pixels, pixel = sch.split(pixels, [None, steps.choose(sch, tiles, tiles[0])])
    part_vector, part_lane = sch.split(o, [vectors, lanes])
    sch.compute_at(acc, pixels, preserve_unit_loops=True)
    *_, acc_pixel, o, c = sch.get_loops(acc)
    acc_vector, acc_lane = sch.split(o, [vectors, lanes])
    step, unrolled = sch.split(c, [None, steps.choose(sch, unrolls, unrolls[-1])])
    sch.reorder(step, unrolled, acc_pixel, acc_vector, acc_lane)

    steps.stage_filter(sch, window)
    steps.stage_data(sch, window, None, target)
    steps.store(sch, window, x if window.stores_vectors else strip, vectors)
    for loop in (unrolled, acc_pixel, acc_vector, pixel, part_vector, vector):
        sch.unroll(loop)
    for loop in (lane, part_lane, acc_lane):
        sch.vectorize(loop)
    sch.decompose_reduction(acc, step)
    # Tiles of pixels that a tap does not meet are skipped; those that it meets in part repeat its last pixel.
    sch.annotate(part_lane, SKIP, 1)
    sch.annotate(pixel, SOME_INSIDE, 1)
    sch.annotate(pixels, SKIP_TILE, 1)
    sch.decompose_reduction(total, taps[0])
    if window.vnni_factor == 2:
        import_dot(sch, task, window, lanes, target)
    steps.offer_axis(sch, "channels", block)
    if rows:  # each tap's first and last tile of a piece have pixels of others: some row of them
        steps.offer_axis(sch, CUT_ROWS, rows[0], again=-(-tiles[0] // window.axes[-1].outputs))
