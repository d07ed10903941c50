"""What a tile of registers and a task cost in a Winograd convolution on CPUs: the default decisions, and what is worth a try."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from tvmconv.algorithms.cpu.cost import lines, tile_step, uneven
from tvmconv.algorithms.cpu.tile import spills_alone
from tvmconv.algorithms.cpu.winograd_tiles import WinogradWindow
from tvmconv.algorithms.shapes import F32_BITS, accumulators, divisors
from tvmconv.schedules.cpu import winograd_structures
from tvmconv.targets.target import CpuTarget

UNROLL = 4  # channels a step, as in direct.py
STRIP_TILES = 64  # of registers, a task's at most along a row that is cut


class Shape(NamedTuple):
    """A tile of registers: `vectors` of output channels for `rows` x `columns` tiles."""

    vectors: int
    rows: int
    columns: int

    def cycles(self, target: CpuTarget) -> float:
        """Return what a multiply-add of whole vectors takes, in the time of one: it, and part of the loads (cost.tile_step)."""
        tiles, step = self.rows * self.columns, target.costs.products
        single = tiles if spills_alone(self.vectors, tiles, target) else 0
        sums = self.vectors * tiles
        return tile_step(step, self.vectors, tiles, sums, stream=step.from_l2, single=single) / sums


class Part(NamedTuple):
    """What a task of rows computes: `images`, `band` times a tile of registers' rows, and `columns` of tiles."""

    images: int
    band: int
    columns: int


def register_tiles(tiles: WinogradWindow, target: CpuTarget) -> list[Shape]:
    """Return the tiles of registers whose sums fit, that divide a window."""
    most = accumulators(target)
    return [
        Shape(vectors, rows, columns)
        for vectors in divisors(tiles.padded_outputs // tiles.lanes, 8)
        for columns in divisors(tiles.columns, most // vectors)
        for rows in divisors(tiles.rows, most // (vectors * columns))
    ]


def image_counts(tiles: WinogradWindow) -> list[int]:
    """Return how many outputs of the first axis a task may have: one, but where several taps read what it transforms.

    Else all of data is transformed before, which no cache keeps.
    """
    return divisors(tiles.axes[0].outputs, 64) if tiles.axes[0].taps > 1 else [1]


def row_bands(tiles: WinogradWindow, shape: Shape) -> list[int]:
    """Return how many times a tile of registers' rows a task may have."""
    return divisors(tiles.rows // shape.rows, 64)


def column_strips(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> list[int]:
    """Return how many of a row's tiles a task may have: all, but where the data of whole rows leave L2.

    Taps along the first axis make rows of thousands of tiles.
    """
    whole, images = tiles.columns, image_counts(tiles)[-1]
    if tiles.tilings[1].axis.dilation > 1 or _data_bytes(tiles, images, 1, whole) <= 2 * target.l2_share:
        return [whole]
    return sorted({count * shape.columns for count in divisors(whole // shape.columns, STRIP_TILES)} | {whole})


def best_part(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> Part:
    """Return the part of least cycles that a task may have."""
    cycles = _cycles_of_structure if target.costs.structures else cycles_of_part
    return min(_parts(tiles, shape, target), key=lambda part: cycles(tiles, shape, part, target))


def _parts(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> Iterator[Part]:
    choices = product(image_counts(tiles), row_bands(tiles, shape), column_strips(tiles, shape, target))
    return (Part(*part) for part in choices)


def cycles_by_rows(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> float:
    """Cycles of all tasks, each some rows of tiles, by the best of their parts."""
    return min(cycles_of_part(tiles, shape, part, target) for part in _parts(tiles, shape, target))


def cycles_of_part(tiles: WinogradWindow, shape: Shape, part: Part, target: CpuTarget) -> float:
    """Cycles of all tasks: multiply-adds, reading the filter, which each does once, and data that another transforms too."""
    problem, rows, first = tiles.problem, part.band * shape.rows, tiles.axes[0]
    count = part.images * rows * part.columns
    tasks = tiles.count * problem.groups // count
    per_task = tiles.points * tiles.depth * tiles.phases * tiles.channels * tiles.padded_outputs // tiles.lanes
    filter_bytes = 4 * per_task * tiles.lanes
    data_bytes = _data_bytes(tiles, part.images, rows, part.columns)
    line = target.costs.lines
    near = filter_bytes + data_bytes <= target.l2_share
    cycles = per_task * count * shape.cycles(target) + lines(filter_bytes) * (line.l2 if near else line.l3)
    if data_bytes > target.l2_share:
        cycles += lines(data_bytes) * (tiles.padded_outputs // (tiles.lanes * shape.vectors)) * line.l3
    if first.taps > 1:
        cycles += target.costs.points.data_again * data_bytes / 4 * F32_BITS / target.vector_bits
    return tasks * ((cycles + target.costs.task) * uneven(tasks))


def best_structure(tiles: WinogradWindow, target: CpuTarget) -> tuple[bool, Shape]:
    """Return whether tasks are rows of tiles, and the tile of registers, of least cycles by `winograd_structures`."""
    shapes = register_tiles(tiles, target)
    by_rows = {
        (True, shape): min(_cycles_of_structure(tiles, shape, part, target) for part in _parts(tiles, shape, target))
        for shape in shapes
    }
    by_channels = {
        (False, shape): winograd_structures.cycles_by_channels(tiles, shape.vectors, shape.rows * shape.columns, target)
        for shape in shapes
    }
    cycles = by_rows | by_channels
    return min(cycles, key=lambda kind: cycles[kind])


def _cycles_of_structure(tiles: WinogradWindow, shape: Shape, part: Part, target: CpuTarget) -> float:
    tile, rows = (shape.vectors, shape.rows * shape.columns), part.band * shape.rows
    return winograd_structures.cycles_by_rows(tiles, *tile, part.images, rows, part.columns, target)


def _data_bytes(tiles: WinogradWindow, images: int, rows: int, columns: int) -> int:
    """Return the size of the transformed data that a task of so many images, rows and columns of tiles reads."""
    first = tiles.axes[0]
    held = (images - 1) * first.stride + first.span
    return 4 * tiles.points * tiles.pieces * held * rows * columns * tiles.channels


def filter_parts(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> int:
    """Into how many parts of input channels a task's filters are cut, to stay in L2."""
    if tiles.prepacked:
        return 1
    channels = tiles.channels
    size = 4 * tiles.points * shape.vectors * tiles.lanes * channels
    parts = divisors(channels // divisors(channels, UNROLL)[-1], 64)
    return next((part for part in parts if size / part <= target.l2_share), parts[-1])


def cycles_by_channels(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> float:
    """Cycles per multiply-add, the sums' way to the cache and back for each part of the channels included."""
    tasks = tiles.groups * tiles.padded_outputs // (tiles.lanes * shape.vectors)
    # A load and a store of each vector, half of them hidden.
    sums = lines(4 * tiles.lanes) * target.costs.lines.l2 * filter_parts(tiles, shape, target) / tiles.channels
    return (shape.cycles(target) + sums) * uneven(tasks)
