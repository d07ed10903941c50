"""What both structures of a Winograd convolution take where two multiply-adds of 512 bits start in a cycle.

In cycles of one core for the whole problem, so that they can be compared; without what both take alike, the transforms. There the
products are twice as fast, and what passes the caches beside them decides. Fitted to 2500 schedules of 80 layers, 150 problems of
`winograd2` and `winograd4`, with all tiles of registers that the model thinks good, on one core of a Zen 5: what is taken takes
1.05 of the fastest of them, and took 1.10.
"""

from __future__ import annotations

from math import prod

from tvmconv.algorithms.cpu.cost import TASK_CYCLES, uneven
from tvmconv.algorithms.cpu.winograd_cost import FILTER_POINT, TAP
from tvmconv.algorithms.cpu.winograd_tiles import WinogradWindow, phases_shift
from tvmconv.targets.cpus import L1_BYTES
from tvmconv.targets.target import CpuTarget

# A load, two of which start in a cycle at best: tiles of one vector load for each multiply-add, and take 1.1 of the time of two.
LOAD = 0.6
# A step waits for the sums of the one before: a multiply-add takes so many cycles.
LATENCY = 4.0
# A vector of the filter from L2, where the part of a tile of registers leaves L1: 256 to 256 channels at
# 19x19 in tiles of 8 vectors by 1 take 13.5 cycles a step, 38 bytes in each.
L2_BYTES = 38.0
# Of each tile of registers and point: its sums are cleared, and stored.
TILE = 40.0
# Bytes a cycle: of transformed data to and from L3; of the copy of data that is padded; of the filter that
# L3 keeps, most of it hidden behind the products; and of one that it does not.
DATA_BYTES, COPY_BYTES, L3_BYTES, MEMORY_BYTES = 16.0, 20.0, 80.0, 12.0
# A vector of sums that L2 does not keep beside the data that pass: stored, and read by the transform of the
# output. 256 to 256 channels at 19x19 by `winograd2` take 1160 us with 410 KB of sums in a task of channels, and 830 with 205.
SUMS_FROM_L3 = 25.0


def cycles_by_rows(
    tiles: WinogradWindow, vectors: int, pixels: int, images: int, rows: int, columns: int, target: CpuTarget
) -> float:
    """Cycles of all tasks, each `images` by `rows` by `columns` tiles, with `pixels` tiles by `vectors` in registers."""
    first, channels, groups = tiles.axes[0], tiles.channels, tiles.groups
    tasks = tiles.count * groups // (images * rows * columns)
    held = (images - 1) * first.stride + first.span
    data = 4 * tiles.points * tiles.pieces * held * rows * columns * channels * _shifted(tiles)
    sums = 4 * tiles.points * images * rows * columns * vectors * tiles.lanes
    filters = tiles.filter_bytes // groups
    cycles = _products(tiles, vectors, pixels, tiles.depth)
    if tiles.filter_bytes > target.l3_share:
        cycles += tasks * filters / MEMORY_BYTES
    elif filters + data > target.l2_share:
        cycles += tasks * filters / L3_BYTES
    if data > target.l2_share:
        cycles += tasks * data / DATA_BYTES
    if sums > target.l2_share:
        cycles += _sums(tiles) * SUMS_FROM_L3
    if tiles.stages_data:
        copied = copied_rows(tiles, rows) * tiles.axes[2].extent * columns // tiles.columns
        cycles += tasks * 4 * held * copied * channels / COPY_BYTES
    return (cycles + tasks * TASK_CYCLES) * uneven(tasks)


def cycles_by_channels(tiles: WinogradWindow, vectors: int, pixels: int, target: CpuTarget) -> float:
    """Cycles of all tasks, each `vectors` of output channels, with `pixels` tiles by `vectors` in registers."""
    first = tiles.axes[0]
    images = tiles.problem.batch * (first.extent if first.taps > 1 else first.outputs)
    blocks = tiles.padded_outputs // (tiles.lanes * vectors)
    tasks = tiles.groups * blocks
    group = 4 * tiles.points * tiles.pieces * images * tiles.rows * tiles.columns * tiles.channels * _shifted(tiles)
    sums = 4 * tiles.points * tiles.count * tiles.phases * vectors * tiles.lanes
    cycles = _products(tiles, vectors, pixels, 1)
    if group + sums > target.l2 * 3 // 4:
        cycles += group * tasks * first.taps / DATA_BYTES
    if group * tiles.groups > target.l2_share:
        cycles += group * tiles.groups / DATA_BYTES
    if sums > target.l2_share // 2:
        cycles += _sums(tiles) * SUMS_FROM_L3
    if tiles.filter_bytes > target.l3_share:
        taps = tiles.tilings[0].axis.taps * tiles.tilings[1].axis.taps
        cycles += (TAP * taps / tiles.points + FILTER_POINT) * tiles.filter_bytes / (4 * tiles.lanes)
    return (cycles + tasks * TASK_CYCLES) * uneven(tasks)


def _products(tiles: WinogradWindow, vectors: int, pixels: int, taps: int) -> float:
    """Cycles of the products, by the slowest of multiply-adds, loads, and vectors of the filter, `taps` of which a tile sums."""
    part = 4 * taps * tiles.channels * vectors * tiles.lanes
    step = max(LATENCY, vectors * pixels / 2, LOAD * (vectors + pixels))
    if part > L1_BYTES:
        step = max(step, 4 * vectors * tiles.lanes / L2_BYTES)
    steps = _sums(tiles) * tiles.depth / (vectors * pixels)
    return steps * (tiles.channels * step + TILE / taps)


def _sums(tiles: WinogradWindow) -> int:
    """Vectors of sums of all points."""
    return tiles.points * tiles.count * tiles.phases * tiles.groups * tiles.padded_outputs // tiles.lanes


def _shifted(tiles: WinogradWindow) -> int:
    """How many phases read data of their own."""
    return prod(axis.phases for axis in tiles.axes[1:] if phases_shift(axis))


def copied_rows(tiles: WinogradWindow, rows: int) -> int:
    """Rows of data that a task of so many rows of tiles copies: all between the first and the last, of interleaved tiles too."""
    tiling, dilation = tiles.tilings[0], tiles.axes[1].dilation
    points = tiling.points + (tiling.pieces - 1) * tiling.axis.taps
    apart, beside = divmod(rows - 1, dilation)
    return apart * tiling.outputs * dilation + (dilation - 1 if apart else beside) + (points - 1) * dilation + 1
