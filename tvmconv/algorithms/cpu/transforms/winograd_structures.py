"""Cycles of the two structures of a Winograd convolution, for CPUs whose rows have the costs of cache traffic.

They are those of one core for the whole problem, without the transforms, which both structures share.
"""

from __future__ import annotations

from ....targets.costs import Structures
from ....targets.target import CpuTarget
from ..model.cost import imbalance, lines, tile_step
from ..windows.plan import Shape, TaskPart
from .winograd_tiles import WinogradWindow


def cycles_by_rows(tiles: WinogradWindow, shape: Shape, part: TaskPart, target: CpuTarget) -> float:
    """Return the cycles of all tasks, each a `part` of the tiles with register tiles of a `shape`, for a few threads."""
    cycles, tasks = work_by_rows(tiles, shape, part, target)
    return cycles * imbalance(tasks)


def work_by_rows(tiles: WinogradWindow, shape: Shape, part: TaskPart, target: CpuTarget) -> tuple[float, int]:
    """Return the cycles of all tasks, and their number."""
    first, channels, groups = tiles.axes[0], tiles.channels, tiles.groups
    images, rows, columns = part.images, part.band * shape.rows, part.columns
    tasks = tiles.count * groups // (images * rows * columns)
    held = (images - 1) * first.stride + first.span
    data = 4 * tiles.points * tiles.pieces * held * rows * columns * channels * tiles.phases_of_data
    sums = 4 * tiles.points * images * rows * columns * shape.vectors * tiles.lanes
    filters = tiles.filter_bytes // groups
    costs, cycles = _costs(target), _products(tiles, shape, tiles.depth, target)
    if tiles.filter_bytes > target.l3_share:
        cycles += tasks * lines(filters) * costs.filter_line_memory
    elif filters + data > target.l2_share:
        cycles += tasks * lines(filters) * costs.filter_line
    if data > target.l2_share:
        cycles += tasks * lines(data) * costs.data_line
    if sums > target.l2_share:
        cycles += _sums(tiles) * costs.sums
    if tiles.stages_data:
        copied = copied_rows(tiles, rows) * tiles.axes[2].extent * columns // tiles.columns
        cycles += tasks * lines(4 * held * copied * channels) * costs.copy_line
    return cycles + tasks * target.costs.task, tasks


def cycles_by_channels(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> float:
    """Return the cycles of all tasks, each the output channels of a register tile `shape`."""
    first, vectors = tiles.axes[0], shape.vectors
    images = tiles.problem.batch * (first.extent if first.taps > 1 else first.outputs)
    blocks = tiles.padded_outputs // (tiles.lanes * vectors)
    tasks = tiles.groups * blocks
    group = (
        4 * tiles.points * tiles.pieces * images * tiles.rows * tiles.columns * tiles.channels * tiles.phases_of_data
    )
    sums = 4 * tiles.points * tiles.count * tiles.phases * vectors * tiles.lanes
    costs, cycles = _costs(target), _products(tiles, shape, 1, target)
    if group + sums > target.l2 * 3 // 4:
        cycles += lines(group * tasks * first.taps) * costs.data_line
    if group * tiles.groups > target.l2_share:
        cycles += lines(group * tiles.groups) * costs.data_line
    if sums > target.l2_share // 2:
        cycles += _sums(tiles) * costs.sums
    if tiles.filter_bytes > target.l3_share:
        taps = tiles.tilings[0].axis.taps * tiles.tilings[1].axis.taps
        cycles += (costs.tap * taps / tiles.points + costs.filter) * tiles.filter_bytes / (4 * tiles.lanes)
    return (cycles + tasks * target.costs.task) * imbalance(tasks)


def _costs(target: CpuTarget) -> Structures:
    assert target.costs.structures is not None
    return target.costs.structures


def _products(tiles: WinogradWindow, shape: Shape, taps: int, target: CpuTarget) -> float:
    """Return the cycles of the products, bound by multiply-adds, loads, or vectors of the filter; a tile sums `taps`."""
    vectors, pixels, costs = shape.vectors, shape.tiles, _costs(target)
    part = 4 * taps * tiles.channels * vectors * tiles.lanes
    stream = costs.step.from_l2 if part > target.l1_share else 0.0
    step = tile_step(costs.step, vectors, pixels, vectors * pixels, stream=stream) / target.multiply_adds
    steps = _sums(tiles) * tiles.depth / (vectors * pixels)
    return steps * (tiles.channels * step + costs.tile / taps)


def _sums(tiles: WinogradWindow) -> int:
    """Return the number of vectors of sums of all points."""
    return tiles.points * tiles.count * tiles.phases * tiles.groups * tiles.padded_outputs // tiles.lanes


def copied_rows(tiles: WinogradWindow, rows: int) -> int:
    """Return the rows of data that a task of so many rows of tiles copies: all from the first to the last, also for interleaved tiles."""
    tiling, dilation = tiles.tilings[0], tiles.axes[1].dilation
    points = tiling.points + (tiling.pieces - 1) * tiling.axis.taps
    apart, beside = divmod(rows - 1, dilation)
    return apart * tiling.outputs * dilation + (dilation - 1 if apart else beside) + (points - 1) * dilation + 1
