"""What a tile of registers and a task cost in a Winograd convolution on CPUs: the default decisions, and what is worth a try."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from tvmconv.algorithms.cpu.cost import L3_BYTES_PER_CYCLE, TASK_CYCLES, uneven
from tvmconv.algorithms.cpu.tile import FROM_L2, sums_of_16_registers
from tvmconv.algorithms.cpu.winograd_tiles import Tiles
from tvmconv.algorithms.shapes import IN_FLIGHT, accumulators, divisors
from tvmconv.schedules.cpu.model import L2_BYTES_PER_CYCLE
from tvmconv.targets.target import CpuTarget

UNROLL = 4  # channels a step, as in direct.py
STRIP_TILES = 64  # of registers, a task's at most along a row that is cut


class Shape(NamedTuple):
    """A tile of registers: `vectors` of output channels for `rows` x `columns` tiles."""

    vectors: int
    rows: int
    columns: int

    def cycles(self, target: CpuTarget) -> float:
        """Cycles per multiply-add of whole vectors: those, and part of the loads (tile.tile_cycles).

        Of 16 registers as direct's, the filter from the second level cache: on one core of a Zen 3, tiles of 4 by 2 vectors took
        0.74 to 0.87 of the time of 8 by 1.
        """
        tiles = self.rows * self.columns
        if target.vector_registers == 16:
            return sums_of_16_registers(tiles, self.vectors, FROM_L2, True) / (self.vectors * tiles)
        return (max(self.vectors * tiles, IN_FLIGHT) + 1.0 * self.vectors + 0.25 * tiles) / (self.vectors * tiles)


def register_tiles(tiles: Tiles, target: CpuTarget) -> list[Shape]:
    """Return the tiles of registers whose sums fit, that divide a window."""
    most = accumulators(target)
    return [
        Shape(vectors, rows, columns)
        for vectors in divisors(tiles.padded_outputs // tiles.lanes, 8)
        for columns in divisors(tiles.columns, most // vectors)
        for rows in divisors(tiles.rows, most // (vectors * columns))
    ]


def row_bands(tiles: Tiles, shape: Shape) -> list[int]:
    """Return how many times a tile of registers' rows a task may have."""
    return divisors(tiles.rows // shape.rows, 64)


def column_strips(tiles: Tiles, shape: Shape, target: CpuTarget) -> list[int]:
    """Return how many of a row's tiles a task may have: all, but where the data of a whole row leave the second level cache.

    144 to 64 channels at 8x56x56, three taps along the first axis, are a row of 3136 tiles, of 11 MB: in strips they take
    11.3 ms instead of 24.0 on one core of a Zen 3.
    """
    whole = tiles.columns
    if tiles.tilings[1].axis.dilation > 1 or _data_bytes(tiles, 1, whole) <= 2 * target.l2_share:
        return [whole]
    return sorted({count * shape.columns for count in divisors(whole // shape.columns, STRIP_TILES)} | {whole})


def cycles_by_rows(tiles: Tiles, shape: Shape, target: CpuTarget) -> float:
    """Cycles of all tasks, each some rows of tiles, by the best of their sizes."""
    parts = product(row_bands(tiles, shape), column_strips(tiles, shape, target))
    return min(cycles_of_part(tiles, shape, *part, target) for part in parts)


def cycles_of_part(tiles: Tiles, shape: Shape, band: int, columns: int, target: CpuTarget) -> float:
    """Cycles of all tasks, of a band of rows and so many columns: multiply-adds, and reading the filter, which each does once."""
    problem, rows = tiles.problem, band * shape.rows
    tasks = problem.batch * tiles.groups * tiles.axes[0].outputs * tiles.rows // rows * (tiles.columns // columns)
    per_task = tiles.points * tiles.depth * tiles.phases * tiles.channels * tiles.padded_outputs // tiles.lanes
    filter_bytes = 4 * per_task * tiles.lanes
    data_bytes = _data_bytes(tiles, rows, columns)
    rate = L2_BYTES_PER_CYCLE if filter_bytes + data_bytes <= target.l2_share else L3_BYTES_PER_CYCLE
    cycles = per_task * rows * columns * shape.cycles(target) + filter_bytes / rate
    if data_bytes > target.l2_share:
        cycles += data_bytes * (tiles.padded_outputs // (tiles.lanes * shape.vectors)) / L3_BYTES_PER_CYCLE
    return tasks * ((cycles + TASK_CYCLES) * uneven(tasks))


def _data_bytes(tiles: Tiles, rows: int, columns: int) -> int:
    """Return the size of so many tiles' transformed data."""
    return 4 * tiles.points * tiles.depth * rows * columns * tiles.channels


def filter_parts(tiles: Tiles, shape: Shape, target: CpuTarget) -> int:
    """Into how many parts of input channels a task's filters are cut, to stay in the second level cache."""
    if tiles.prepacked:
        return 1
    channels = tiles.channels
    size = 4 * tiles.points * shape.vectors * tiles.lanes * channels
    parts = divisors(channels // divisors(channels, UNROLL)[-1], 64)
    return next((part for part in parts if size / part <= target.l2_share), parts[-1])


def cycles_by_channels(tiles: Tiles, shape: Shape, target: CpuTarget) -> float:
    """Cycles per multiply-add, the sums' way to the cache and back for each part of the channels included."""
    tasks = tiles.groups * tiles.padded_outputs // (tiles.lanes * shape.vectors)
    # A load and a store of each vector, half of them hidden.
    sums = 4 * tiles.lanes / L2_BYTES_PER_CYCLE * filter_parts(tiles, shape, target) / tiles.channels
    return (shape.cycles(target) + sums) * uneven(tasks)
