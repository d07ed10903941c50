"""Plan Winograd's products, for both estimate and schedule: register tiles, tasks, and one of two structures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product

from ....problem import Problem
from ....targets.target import CpuTarget
from ...pairs import adds_products
from ...shapes import F32_BITS, accumulators, divisors
from ..model.cost import MANY, imbalance, lines, tile_step, weigh, weigh_many
from ..windows.filter_pieces import FAR_APART_BYTES
from ..windows.plan import Options, Shape, TaskPart, WinogradPlan
from ..windows.tile import count_spills, spills_alone
from . import winograd_structures
from .winograd_tiles import WinogradWindow, tiles_of

UNROLL = 4  # channels of a step, at most
# Most tiles whose products hide nothing of reading a filter from L3; more hide it quadratically (benchmarks/results/coefficients.md).
HIDING_TILES = 12
# Products hide all but one part in so many of a filter that tasks of rows read (benchmarks/results/coefficients.md).
HIDDEN = 4
STRIP_TILES = 64  # register tiles of a task along a row that is cut, at most
# Most tiles for which prefetching the next block's filter pays (benchmarks/results/coefficients.md, `few_prefetches`).
MOST_PREFETCHED = 40
MOST_PLANS = 6


def planned_windows(
    problem: Problem, target: CpuTarget, points: int, prepacked: bool = False, most: int = MOST_PLANS
) -> list[WinogradWindow]:
    """Return a problem's windows with `most` plans, the best first: both structures for a few register tiles.

    With `prepacked`, the transformed filter is prepacked if a cache keeps it.
    """
    windows = tiles_of(problem, target, points)
    whole = "filter_transformed_whole" in target.costs.pays and any(_far_apart(tiles) for tiles in windows)
    if (prepacked or whole) and sum(tiles.filter_bytes for tiles in windows) <= target.l3_share:
        windows = [replace(tiles, prepacked=True) for tiles in windows]
    return [
        replace(tiles, plans=tuple(_plan(tiles, *kind, target) for kind in islice(_kinds(tiles, target), most)))
        for tiles in windows
    ]


def _far_apart(tiles: WinogradWindow) -> bool:
    """Return whether a task's part of the filter is a line or two of each row, and rows are far apart.

    The whole filter is then transformed before, where that pays (benchmarks/results/coefficients.md, `filter_transformed_whole`).
    """
    return tiles.reads_rows and tiles.groups == 1 and 4 * tiles.outputs >= FAR_APART_BYTES


def _kinds(tiles: WinogradWindow, target: CpuTarget) -> Iterator[tuple[bool, Shape]]:
    """Yield structures (whether tasks are rows of tiles) and register tiles, the best first."""
    if target.costs.structures is not None:
        # This one is mostly among the others as well, but for several windows at different positions, so it is yielded first.
        yield best_structure(tiles, target)
    shapes, more_data = register_tiles(tiles, target), tiles.count * tiles.pieces > tiles.outputs * tiles.depth
    for by_rows, tried in ((more_data, 3), (not more_data, 2)):
        cycles = cycles_by_rows if by_rows else cycles_by_channels
        best = sorted(shapes, key=lambda shape: cycles(tiles, shape, target))
        yield from ((by_rows, shape) for shape in best[:tried])


def _plan(tiles: WinogradWindow, by_rows: bool, shape: Shape, target: CpuTarget) -> WinogradPlan:
    part = (best_part if by_rows else best_channel_part)(tiles, shape, target)
    unrolls, strips = divisors(tiles.channels_together, UNROLL), column_strips(tiles, shape, target)
    few = tiles.count <= MOST_PREFETCHED or "few_prefetches" not in target.costs.pays
    return WinogradPlan(
        by_rows=by_rows,
        shape=shape,
        images=(image_counts(tiles), part.images) if by_rows else ([part.images], part.images),
        bands=(row_bands(tiles, shape), part.band) if by_rows else ([part.band], part.band),
        strips=(strips if part.columns in strips else [part.columns], part.columns),
        unrolls=(unrolls, unrolls[-1]),
        filter_parts=filter_parts(tiles, shape, target),
        prefetches=tiles.prepacked and few,
    )


def shape_cycles(shape: Shape, target: CpuTarget) -> float:
    """Return the cost per multiply-add of whole vectors, including loads (`cost.tile_step`)."""
    tiles, sums, step = shape.tiles, shape.vectors * shape.tiles, target.costs.products
    single = tiles if spills_alone(shape.vectors, tiles, target) else 0
    return tile_step(step, shape.vectors, tiles, sums, stream=step.from_l2, single=single) / sums


def register_tiles(tiles: WinogradWindow, target: CpuTarget) -> list[Shape]:
    """Return the register tiles that divide a window and whose sums fit the registers."""
    most, adds = accumulators(target), adds_products(tiles.problem, tiles.vnni_factor, target)
    shapes = [
        Shape(vectors, rows, columns)
        for vectors in divisors(tiles.padded_outputs // tiles.lanes, 8)
        for columns in divisors(tiles.columns, most // vectors)
        for rows in divisors(tiles.rows, most // (vectors * columns))
    ]
    return [each for each in shapes if not (adds and count_spills(each.tiles, each.vectors, target, adds))]


def image_counts(tiles: WinogradWindow) -> list[int]:
    """Return the numbers of outputs of the first axis that a task may have: 1, unless several taps read its transformed data.

    Otherwise all data would be transformed before, which no cache keeps.
    """
    return divisors(tiles.axes[0].outputs, 64) if tiles.axes[0].taps > 1 else [1]


def row_bands(tiles: WinogradWindow, shape: Shape) -> list[int]:
    """Return the multiples of a register tile's rows that a task may have."""
    return divisors(tiles.rows // shape.rows, 64)


def column_strips(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> list[int]:
    """Return the numbers of a row's tiles that a task may have: all, unless the data of whole rows exceed L2.

    Rows can have thousands of tiles with taps along the first axis.
    """
    whole, images = tiles.columns, image_counts(tiles)[-1]
    if tiles.tilings[1].axis.dilation > 1 or _data_bytes(tiles, images, 1, whole) <= 2 * target.l2_share:
        return [whole]
    return sorted({count * shape.columns for count in divisors(whole // shape.columns, STRIP_TILES)} | {whole})


def _task_columns(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> list[int]:
    """Return the numbers of a row's tiles considered for the default: those of choices, or also fewer if rows are few for many threads."""
    strips, tasks = (
        column_strips(tiles, shape, target),
        tiles.problem.batch * tiles.axes[0].outputs * tiles.rows // shape.rows,
    )
    if len(strips) > 1 or tiles.tilings[1].axis.dilation > 1 or tasks * tiles.groups >= MANY[-1]:
        return strips
    return [count * shape.columns for count in divisors(tiles.columns // shape.columns, STRIP_TILES)]


def best_part(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> TaskPart:
    """Return the part of a task of least cost."""
    return min(_parts(tiles, shape, target), key=lambda part: cycles_of_part(tiles, shape, part, target))


def _few_parts(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> Iterator[TaskPart]:
    """Yield the parts by which register tiles are compared for a few threads: without the parts of rows meant for more threads."""
    choices = product(image_counts(tiles), row_bands(tiles, shape), column_strips(tiles, shape, target))
    return (TaskPart(*part) for part in choices)


def _parts(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> Iterator[TaskPart]:
    choices = product(image_counts(tiles), row_bands(tiles, shape), _task_columns(tiles, shape, target))
    return (TaskPart(*part) for part in choices)


def cycles_by_rows(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> float:
    """Return the cycles of all tasks, each some rows of tiles, by the best part for a few threads."""
    found = (_work_of_part(tiles, shape, part, 1, target) for part in _few_parts(tiles, shape, target))
    return min(cycles * imbalance(tasks) for cycles, tasks in found)


def cycles_of_part(tiles: WinogradWindow, shape: Shape, part: TaskPart, target: CpuTarget) -> float:
    """Return the weighted cycles of all tasks, each a `part` of the tiles, for comparing parts."""
    if target.costs.structures:
        return weigh(*winograd_structures.work_by_rows(tiles, shape, part, target))
    return weigh(*_work_of_part(tiles, shape, part, HIDDEN if tiles.axes[0].taps == 1 else 1, target))


def _work_of_part(
    tiles: WinogradWindow, shape: Shape, part: TaskPart, hidden: int, target: CpuTarget
) -> tuple[float, int]:
    """Return the cycles of all tasks, and their number: multiply-adds, reading the filter, and transforming shared data."""
    problem, rows, first = tiles.problem, part.band * shape.rows, tiles.axes[0]
    count = part.images * rows * part.columns
    tasks = tiles.count * problem.groups // count
    per_task = tiles.points * tiles.depth * tiles.phases * tiles.channels * tiles.padded_outputs // tiles.lanes
    filter_bytes = 4 * per_task * tiles.lanes
    data_bytes = _data_bytes(tiles, part.images, rows, part.columns)
    line = target.costs.lines
    near = filter_bytes + data_bytes <= target.l2_share
    filters = lines(filter_bytes) * (line.l2 if near else line.l3) / hidden
    cycles = per_task * count * shape_cycles(shape, target) + filters
    if data_bytes > target.l2_share:
        cycles += lines(data_bytes) * (tiles.padded_outputs // (tiles.lanes * shape.vectors)) * line.l3
    if first.taps > 1:
        cycles += target.costs.points.data_again * data_bytes / 4 * F32_BITS / target.vector_bits
    return tasks * (cycles + target.costs.task), tasks


def best_structure(tiles: WinogradWindow, target: CpuTarget) -> tuple[bool, Shape]:
    """Return the structure (whether tasks are rows of tiles) and the register tile of least cycles by `winograd_structures`.

    Many threads may cut tasks into register tiles.
    """

    def cycles(kind: tuple[bool, Shape]) -> float:
        by_rows, shape = kind
        blocks = tiles.groups * tiles.padded_outputs // (tiles.lanes * shape.vectors)
        pieces = tiles.count // shape.tiles * blocks
        if not by_rows:
            return weigh_many(winograd_structures.cycles_by_channels(tiles, shape, target), pieces)
        parts = _few_parts(tiles, shape, target)
        found = min(winograd_structures.cycles_by_rows(tiles, shape, part, target) for part in parts)
        return weigh_many(found, pieces)

    return min(product((True, False), register_tiles(tiles, target)), key=cycles)


def _data_bytes(tiles: WinogradWindow, images: int, rows: int, columns: int) -> int:
    """Return the bytes of transformed data that a task of so many images, rows and columns of tiles reads."""
    first = tiles.axes[0]
    held = (images - 1) * first.stride + first.span
    return 4 * tiles.points * tiles.pieces * held * rows * columns * tiles.channels


def filter_parts(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> Options:
    """Return the numbers of parts of input channels that a task's filters may be cut into, and the least that fits L2."""
    parts = divisors(tiles.channels // divisors(tiles.channels, UNROLL)[-1], 64)
    size = 4 * tiles.points * shape.vectors * tiles.lanes * tiles.channels
    return parts, next((part for part in parts if tiles.prepacked or size / part <= target.l2_share), parts[-1])


def cycles_by_channels(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> float:
    """Return the cycles per multiply-add, including storing and loading sums for each part of the channels."""
    tasks = tiles.groups * tiles.padded_outputs // (tiles.lanes * shape.vectors)
    # A load and a store of each vector, of which half is hidden.
    sums = lines(4 * tiles.lanes) * target.costs.lines.l2 * filter_parts(tiles, shape, target)[1] / tiles.channels
    return (shape_cycles(shape, target) + sums) * imbalance(tasks)


def best_channel_part(tiles: WinogradWindow, shape: Shape, target: CpuTarget) -> TaskPart:
    """Return the part of the tiles, of least cycles, of a task of some output channels: all tiles unless the filter is prepacked.

    Parts count the filter that additional tasks read again.
    """
    images, bands, vectors = [tiles.axes[0].outputs], [tiles.rows // shape.rows], tiles.padded_outputs // tiles.lanes
    if tiles.prepacked:
        images, bands = divisors(images[0], STRIP_TILES), row_bands(tiles, shape)
    products = tiles.points * tiles.count * tiles.depth * tiles.phases * tiles.groups * tiles.channels * vectors

    def cycles(part: TaskPart) -> float:
        parts = images[-1] // part.images * (bands[-1] // part.band)
        again = target.costs.lines.l3 * min(1.0, HIDING_TILES * parts / tiles.count) ** 2
        filters = (parts - 1) * lines(tiles.filter_bytes) * again
        return weigh(products * shape_cycles(shape, target) + filters, tiles.groups * vectors // shape.vectors * parts)

    return min((TaskPart(*part, tiles.columns) for part in product(images, bands)), key=cycles)
