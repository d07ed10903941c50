"""Search space of direct convolution by products of matrices in vector registers (ARM's BFMMLA).

A task is some rows of one part of the output channels, or a part of the only row. It copies its data, in which neighbouring pixels of
a quad of channels lie together, so that a load has the pixels of a product; of a row with a stride, those of each residue. The
sums of a tile are in registers of 2 pixels by 2 output channels, which are separated when they are stored.

BFMMLA rounds as two BFDOT after each other: products to odd, sums to odd, denormal numbers and sums are zeros.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from tvmconv.algorithms.annotations import MATRICES, UNREAD
from tvmconv.algorithms.cpu.mmla import MatrixWindow, tile_cycles, widths
from tvmconv.algorithms.cpu.model.tasks import TASKS, rows_first, task_cycles
from tvmconv.algorithms.cpu.windows.window import FEW_PIXELS
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.pairs import MATRIX
from tvmconv.algorithms.shapes import divisors, part_counts
from tvmconv.algorithms.stage_names import ACC, DATA_PAD, stage_name
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.dots import import_round
from tvmconv.targets.cpus import L1_WAY_BYTES, LINE_BYTES
from tvmconv.targets.target import CpuTarget

MOST_CHUNKS = 16
FAR_APART = L1_WAY_BYTES // 4  # a quarter of the sets of L1, where rows of a copy lie
_FUNCTION = """
declare <{lanes} x float> @{intrinsic}(<{lanes} x float>, <{data} x bfloat>, <{filters} x bfloat>)
define <{lanes} x float> @{matrix}(<{lanes} x float> %sums, <{rows} x i64> %a, <{columns} x i64> %b) alwaysinline nounwind {{
  %x = bitcast <{rows} x i64> %a to <{data} x bfloat>
  %y = bitcast <{columns} x i64> %b to <{filters} x bfloat>
  %r = call <{lanes} x float> @{intrinsic}(<{lanes} x float> %sums, <{data} x bfloat> %x, <{filters} x bfloat> %y)
  ret <{lanes} x float> %r
}}
"""


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each number of vectors of channels in a tile, the default first."""

    def shared(first: MatrixWindow) -> list[int]:
        """Return the numbers of vectors that all windows' channels divide into."""
        parts = [window.padded_outputs // window.lanes for window in definition.windows]
        counts = [count for count in divisors(parts[0], 8) if all(part % count == 0 for part in parts)]
        fitting = [(count, widths(first, count, target)) for count in counts]
        cycles = {count: tile_cycles(first, tiles[0], count, target) for count, tiles in fitting if tiles}
        return sorted(cycles, key=lambda count: cycles[count])[:3]

    return steps.sketches(sch, definition, target, shared, _schedule)


def _schedule(sch: Schedule, window: MatrixWindow, vectors: int, target: CpuTarget) -> None:
    rank, rows, columns = len(window.axes), window.rows, window.columns
    tiles = widths(window, vectors, target)[:4]
    unrolls = divisors(window.channels, 4)

    acc, (n, g), (phases, spatial, o), (*taps, c) = steps.sum_in_registers(sch, window)

    chunks, bands = _tasks(window, vectors, tiles[0], target)
    parts = window.lanes // columns
    chunk, block, vector, part, column = sch.split(o, [steps.choose(sch, *chunks), None, vectors, parts, columns])
    pixels = [tile // rows for tile in tiles]
    tile, x, pixel = sch.split(spatial[-1], [None, steps.choose(sch, pixels, pixels[0]), rows])
    step, unrolled = sch.split(c, [None, steps.choose(sch, unrolls, unrolls[-1])])
    if rank > 1:
        band, row = sch.split(spatial[-2], [None, steps.choose(sch, *bands)])
        around, inner = [*spatial[:-2], band], [*phases, block, row, tile]
    else:
        run, tile = sch.split(tile, [steps.choose(sch, *bands), None])
        around, inner = [run], [*phases, block, tile]
    outer = [n, g, *steps.task_loops(around, chunk, rows_first(window, target))]
    held = [x, vector, part] if pixels[0] > vectors * parts else [vector, part, x]
    sch.reorder(*outer, *inner, *taps, step, unrolled, *held, pixel, column)
    lane = sch.fuse(pixel, column)
    task = sch.fuse(*outer)
    sch.parallel(task)

    steps.stage_filter(sch, window)
    _stage_data(sch, window, task, target)
    steps.store(sch, window, inner[-1], vectors)
    for loop in (unrolled, *held):
        sch.unroll(loop)
    sch.vectorize(lane)
    _lay_out(sch, window)
    sch.decompose_reduction(acc, taps[0])
    steps.skip_padding(sch, window, x, lane)
    sch.annotate(lane, MATRICES, 1)
    _import(sch, window, task, target)
    steps.offer_each(sch, inner)


def _tasks(
    window: MatrixWindow, vectors: int, width: int, target: CpuTarget
) -> tuple[tuple[list[int], int], tuple[list[int], int]]:
    """Return the possible parts of the output channels, and rows of a task, or parts of the only row, each with its default."""
    chunks = part_counts(window.padded_outputs // (vectors * window.lanes), MOST_CHUNKS, TASKS)
    if len(window.axes) > 1:
        bands = divisors(window.axes[-2].outputs, 64)
        ways = product(chunks, bands)
        chunk, rows = min(ways, key=lambda way: task_cycles(window, way[0], way[1], width, target))
        return (chunks, chunk), (bands, rows)
    runs = [
        count for count in divisors(window.row // width, 64) if count == 1 or window.row // count >= FEW_PIXELS // 4
    ]
    ways = product(chunks, runs)
    chunk, run = min(ways, key=lambda way: task_cycles(window, way[0], 1, window.row // way[1], target))
    return (chunks, chunk), (runs, run)


def _stage_data(sch: Schedule, window: MatrixWindow, task: LoopRV, target: CpuTarget) -> None:
    """Copy data: each task its own; all of it first for shifted tiles of a single row, whose parts' extent TVM does not find."""
    block = sch.get_sblock(stage_name(DATA_PAD, window.index))
    once = len(window.axes) == 1 and window.tile > 0
    if not once:
        sch.compute_at(block, task, preserve_unit_loops=True)
    *_, column, channel = sch.get_loops(block)
    if window.problem.data_format == "NCX":
        sch.reorder(channel, column)
    if window.skips_rows:
        sch.annotate(column, UNREAD, 1)
    if once:
        sch.parallel(sch.fuse(*sch.get_loops(block)[:2]))


def _lay_out(sch: Schedule, window: MatrixWindow) -> None:
    """Make a register's sums contiguous, and neighbouring pixels of a quad of data."""
    rows, columns, residues = window.rows, window.columns, window.residues
    acc, data = (sch.get_sblock(stage_name(stage, window.index)) for stage in (ACC, DATA_PAD))

    def by_registers(*indices: Any) -> list[Any]:
        *outer, x, o = indices
        return [*outer, x // rows, o // columns, x % rows * columns + o % columns]

    def by_channels(*indices: Any) -> list[Any]:
        *outer, x, c = indices
        return [*outer, c, x] if residues == 1 else [*outer, c, x % residues, x // residues]

    sch.transform_layout(acc, ("write", 0), by_registers)
    sch.transform_layout(data, ("write", 0), by_channels)
    held = window.element_bytes * -(-window.row_extent // window.axes[-1].gap)
    if held % FAR_APART == 0:
        # A pixel's quads would share a set of L1.
        line = [nbytes // window.element_bytes for nbytes in (FAR_APART, LINE_BYTES)]
        sch.storage_align(data, 0, -2 if residues == 1 else -3, *line)


def _import(sch: Schedule, window: MatrixWindow, task: LoopRV, target: CpuTarget) -> None:
    matrices = target.matrices
    assert matrices is not None
    rows, columns, depth = matrices.rows, matrices.columns, matrices.depth
    text = _FUNCTION.format(
        lanes=rows * columns,
        rows=rows,
        columns=columns,
        data=rows * depth,
        filters=columns * depth,
        intrinsic=matrices.intrinsic,
        matrix=MATRIX,
    )
    import_round(sch, task, window.lanes, text)
