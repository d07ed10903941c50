"""Search space of Winograd convolutions on CPUs.

Of the two matrices that are multiplied for each point, the larger is made in pieces that stay in L2
until they are used, and the smaller is made once, before. With fewer channels than tiles a task is some rows of
tiles, of several images where taps along the first axis share them: it transforms their data, and walks over all channels.
Otherwise a task is some output channels: it transforms their filters, part by part of the input channels, and walks over
all tiles, or, where the filters are there already, some rows of them. The product's tile of registers is that of the direct algorithm: some tiles' values, broadcast, times some
vectors of channels.

Where two multiply-adds of 512 bits start in a cycle, products take no longer than what passes the caches beside them: there the
default is the structure of least cycles (tvmconv/algorithms/cpu/transforms/winograd_structures.py).
"""

from __future__ import annotations

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from tvmconv.algorithms.annotations import (
    PACK,
    PART,
    PREFETCH_NEXT,
    TO_PIXELS,
    TO_PIXELS_IF_WHOLE,
    TO_PLANES_IF_WIDE,
    TRANSPOSE,
    copy_of_filter,
)
from tvmconv.algorithms.cpu.transforms.winograd_tiles import WinogradWindow
from tvmconv.algorithms.cpu.windows.plan import Shape, WinogradPlan
from tvmconv.algorithms.definition import Definition
from tvmconv.algorithms.shapes import divisors
from tvmconv.algorithms.stage_names import (
    ACC,
    DATA_PAD,
    DATA_ROWS,
    DATA_TILES,
    FILTER_PACK,
    FILTER_ROWS,
    FILTER_TILES,
    OUT,
    OUT_ROWS,
    TILE,
    stage_name,
)
from tvmconv.schedules.cpu import steps
from tvmconv.schedules.cpu.dots import import_dot
from tvmconv.targets.target import CpuTarget

# Stride between the values of a tile's points: an odd number of cache lines puts them into different sets.
TWO_LINES, LINE = 32, 16  # floats
TRANSPOSED = 64  # input channels that are transposed at a time
# Number of tiles whose products take as long as reading the filter again.
TILES_OF_FILTER = 4


def space(sch: Schedule, definition: Definition, target: CpuTarget) -> list[Schedule]:
    """Return one schedule for each plan of the windows, the default first."""
    sketches = []
    for number in range(len(definition.windows[0].plans)):
        sketch = sch.copy()
        for tiles in definition.windows:
            plan = tiles.plans[min(number, len(tiles.plans) - 1)]
            for value in plan.shape:
                steps.choose(sketch, [value], value)  # no choice, but records then tell which sketch they are of
            (_by_rows if plan.by_rows else _by_channels)(sketch, tiles, plan, target)
        steps.fill(sketch)
        sketches.append(sketch)
    return sketches


def _by_rows(sch: Schedule, tiles: WinogradWindow, plan: WinogradPlan, target: CpuTarget) -> None:
    i, shape = tiles.index, plan.shape
    n, g, *phases, z, rows, columns, y, x, o = sch.get_loops(sch.get_sblock(stage_name(OUT, i)))
    band, block_row, row = sch.split(rows, [None, steps.choose(sch, *plan.bands), shape.rows])
    cut, whole = [], tiles.columns
    if len(plan.strips[0]) > 1 or plan.strips[1] < tiles.columns:
        most = steps.choose(sch, *plan.strips) if len(plan.strips[0]) > 1 else plan.strips[1]
        strip, columns = sch.split(columns, [None, most])
        cut, whole = [strip], shape.columns
    image = []
    if len(plan.images[0]) > 1:
        z, *image = sch.split(z, [None, steps.choose(sch, *plan.images)])
    block, vector, lane = sch.split(o, [None, shape.vectors, tiles.lanes])
    columns, *own = own_loops(sch, tiles, columns, y, x, lane, whole)
    sch.reorder(n, g, z, band, *cut, *phases, block, *image, block_row, row, columns, vector, *own)
    task = sch.fuse(n, g, z, band, *cut)
    sch.parallel(task)
    transformed_back(sch, tiles, vector, own)

    _, (*_, held, row_tile, column_tile) = _sum_in_registers(sch, tiles, plan, block)
    if tiles.vnni_factor > 1:
        import_dot(sch, task, tiles, tiles.lanes, target)

    transformed = _data(sch, tiles, task, target)
    _filter(sch, tiles)
    _offer_tiles(sch, tiles, (transformed[0], row_tile, block_row), (transformed[1], column_tile, columns))
    steps.offer_axis(sch, "channels", block)
    if image:
        steps.offer_axis(sch, "images", held, *image)
    for number, phase in enumerate(phases):
        steps.offer_axis(sch, f"phases{number}", phase)


def _by_channels(sch: Schedule, tiles: WinogradWindow, plan: WinogradPlan, target: CpuTarget) -> None:
    i, shape = tiles.index, plan.shape
    n, g, *phases, z, rows, columns, y, x, o = sch.get_loops(sch.get_sblock(stage_name(OUT, i)))
    images, z = sch.split(z, [None, plan.images[1]])
    band, rows = sch.split(rows, [None, plan.bands[1] * shape.rows])
    block, vector, lane = sch.split(o, [None, shape.vectors, tiles.lanes])
    columns, *own = own_loops(sch, tiles, columns, y, x, lane, tiles.columns)
    sch.reorder(g, block, images, band, n, *phases, z, rows, columns, vector, *own)
    task = sch.fuse(g, block, images, band)
    sch.parallel(task)
    transformed_back(sch, tiles, vector, own)

    if tiles.vnni_factor > 1:
        # Instructions that multiply pairs read memory: sums there would be stored for each.
        copied, sums = _sum_in_registers(sch, tiles, plan, task)
        part, b, kz = task, sch.get_loops(copied)[2], None
        import_dot(sch, task, tiles, tiles.lanes, target)
    else:
        (part, b, kz), sums = _sum_by_parts(sch, tiles, plan, task)
    if tiles.prepacked:
        _filter(sch, tiles)
    else:
        block = sch.get_sblock(stage_name(FILTER_TILES, i))
        sch.compute_at(block, part, preserve_unit_loops=True)
        filter_by_vectors(sch, tiles, block)
    if kz is not None:
        sch.decompose_reduction(sch.get_sblock(stage_name(ACC, i)), kz)
    if plan.prefetches:
        sch.annotate(b, PREFETCH_NEXT, copy_of_filter(stage_name(FILTER_TILES, i), 2))

    _data(sch, tiles, None, target)
    *sums, row_tile, column_tile = sums
    _offer_tiles(sch, tiles, (row_tile, rows), (column_tile, columns))
    for number, loops in enumerate(zip(sums, (n, *phases, z), strict=True)):
        steps.offer_axis(sch, f"outer{number}", *loops)


def _offer_tiles(sch: Schedule, tiles: WinogradWindow, rows: tuple[LoopRV, ...], columns: tuple[LoopRV, ...]) -> None:
    """Let tasks be cut along the loops over their rows, and over the tiles of a row where these are no lines of planes."""
    count = int(sch.get(rows[-1]).extent) * int(sch.get(columns[-1]).extent)
    for axis, loops in (("rows", rows), ("columns", columns)):
        if axis == "rows" or tiles.problem.data_format == "NXC":
            pieces = min(int(sch.get(loop).extent) for loop in loops)
            steps.offer_axis(sch, axis, *loops, again=-(-TILES_OF_FILTER * pieces // count))


def _sum_in_registers(
    sch: Schedule, tiles: WinogradWindow, plan: WinogradPlan, at: LoopRV
) -> tuple[SBlockRV, list[LoopRV]]:
    """Keep sums in registers until they are whole; return the block that copies them, at the loop `at`, and its loops around tiles of registers."""
    acc = sch.get_sblock(stage_name(ACC, tiles.index))
    sums = sch.cache_write(acc, 0, "local")
    sch.compute_at(sums, at, preserve_unit_loops=True)
    n, _, *around, rows, columns, o = sch.get_loops(sums)[-9:]
    tile, inner = _tile(sch, rows, columns, o, plan.shape, tiles)
    sch.reorder(*tile, *inner)
    in_registers(sch, inner)
    spread_points(sch, sums)
    sch.compute_at(acc, tile[-1], preserve_unit_loops=True)
    *_, rows, columns, o, kz, c = sch.get_loops(acc)
    step, unrolled = sch.split(c, [None, steps.choose(sch, *plan.unrolls)])
    _, inner = _tile(sch, rows, columns, o, plan.shape, tiles)
    sch.reorder(kz, step, unrolled, *inner)
    in_registers(sch, [unrolled, *inner])
    sch.decompose_reduction(acc, kz)
    return sums, [n, *around, *tile]


def _sum_by_parts(
    sch: Schedule, tiles: WinogradWindow, plan: WinogradPlan, task: LoopRV
) -> tuple[tuple[LoopRV, LoopRV, LoopRV], list[LoopRV]]:
    """Add to sums in memory part by part of the input channels.

    Returns the loops over parts, the last axis of points and first taps, and those around tiles of registers.
    """
    acc = sch.get_sblock(stage_name(ACC, tiles.index))
    sch.compute_at(acc, task, preserve_unit_loops=True)
    a, b, n, g, *phases, z, rows, columns, o, kz, c = sch.get_loops(acc)[1:]
    part, step, unrolled = sch.split(c, [steps.choose(sch, *plan.filter_parts), None, plan.unrolls[1]])
    tile, inner = _tile(sch, rows, columns, o, plan.shape, tiles)
    sch.reorder(g, *phases, kz, part, a, b, n, z, *tile, step, unrolled, *inner)
    in_registers(sch, [unrolled, *inner])
    spread_points(sch, acc)
    return (part, b, kz), [n, *phases, z, *tile]


def _tile(
    sch: Schedule, rows: LoopRV, columns: LoopRV, o: LoopRV, shape: Shape, tiles: WinogradWindow
) -> tuple[list[LoopRV], list[LoopRV]]:
    """Split three loops into those over tiles of registers and those within one."""
    row_tile, row = sch.split(rows, [None, shape.rows])
    column_tile, column = sch.split(columns, [None, shape.columns])
    vector, lane = sch.split(o, [shape.vectors, tiles.lanes])
    return [row_tile, column_tile], [row, column, vector, lane]


def in_registers(sch: Schedule, loops: list[LoopRV]) -> None:
    """Unroll all loops but the last, the lanes."""
    for loop in loops[:-1]:
        sch.unroll(loop)
    sch.vectorize(loops[-1])


def own_loops(
    sch: Schedule, tiles: WinogradWindow, columns: LoopRV, y: LoopRV, x: LoopRV, lane: LoopRV, whole: int
) -> list[LoopRV]:
    """Return the loop over a row's tiles, and those within one; planes get a cache line of a row at a time, of several tiles.

    `columns` is a multiple of `whole`.
    """
    if tiles.problem.data_format == "NXC":
        return [columns, y, x, lane]
    columns, in_line = sch.split(columns, [None, divisors(whole, LINE // tiles.tilings[1].outputs)[-1]])
    # A single axis is the second one, whose outputs are a row.
    return [columns, y, lane, in_line, x] if tiles.problem.out_spatial[-1] > 1 else [columns, lane, y, in_line, x]


def transformed_back(sch: Schedule, tiles: WinogradWindow, vector: LoopRV, own: list[LoopRV]) -> None:
    """Transform back a vector of channels of one tile, in straight-line code."""
    rows = sch.get_sblock(stage_name(OUT_ROWS, tiles.index))
    if tiles.stores_vectors:
        in_registers(sch, own)
    else:
        tile = sch.get_sblock(stage_name(TILE, tiles.index))
        sch.set_scope(tile, 0, "local")
        sch.compute_at(tile, vector, preserve_unit_loops=True)
        vector, *loops = sch.get_loops(tile)[-4:]
        in_registers(sch, loops)
        if tiles.problem.data_format == "NCX":
            sch.fuse(*own[-2:])
            if tiles.stores_rows and tiles.tilings[1].axis.dilation == 1:  # else a tile's outputs lie apart
                sch.annotate(own[-3], TRANSPOSE, TO_PLANES_IF_WIDE)
    sch.set_scope(rows, 0, "local")
    sch.compute_at(rows, vector, preserve_unit_loops=True)
    # The stage's own loops follow those around `vector`, points first.
    own = sch.get_loops(rows)[-(len(tiles.axes) * 2 + 4) :]
    in_registers(sch, [own[0], own[1], own[-1]])


def _filter(sch: Schedule, tiles: WinogradWindow) -> None:
    """Transform all of the filter first, in parallel."""
    block = sch.get_sblock(stage_name(FILTER_TILES, tiles.index))
    outer, lane = filter_by_vectors(sch, tiles, block)
    sch.parallel(sch.fuse(*outer))
    sch.annotate(lane, PACK, 1)


def filter_by_vectors(sch: Schedule, tiles: WinogradWindow, block: SBlockRV) -> tuple[list[LoopRV], LoopRV]:
    """Transform, of a vector of channels, the input channels one after another; return the outer loops, and the lanes.

    So each point's values are written in order, and the part of a few channels that is read stays in L1 for all
    phases. Vectors of half a cache line take turns after each few channels, while the other half is in L1. Lanes
    that are not contiguous are first transposed, for long runs of input channels.
    """
    a, b, *phases, kz, g, vector, c, lane = sch.get_loops(block)[-10:]
    apart = steps.has_block(sch, stage_name(FILTER_PACK, tiles.index))
    # With their taps, 16 channels are enough of a row.
    most = TRANSPOSED if apart and not tiles.taps_are_columns else LINE
    few, c = sch.split(c, [None, divisors(int(sch.get(c).extent), most)[-1]])
    outer = [g, few, vector] if tiles.lanes < LINE and tiles.reads_rows else [g, vector, few]
    sch.reorder(*outer, *phases, kz, c, a, b, lane)
    transform_in_registers(sch, block, sch.get_sblock(stage_name(FILTER_ROWS, tiles.index)), c, [a, b, lane])
    if apart:
        pack = sch.get_sblock(stage_name(FILTER_PACK, tiles.index))
        sch.compute_at(pack, few, preserve_unit_loops=True)
        *_, c, pack_lane = sch.get_loops(pack)
        sch.vectorize(pack_lane)
        columns: LoopRV | None = c
        if tiles.taps_are_columns:
            *taps, g, block, c, pack_lane = sch.get_loops(pack)[-7:]
            sch.reorder(g, block, c, *taps, pack_lane)
            columns = steps.taps_as_columns(sch, tiles, c, taps)
        if columns and int(sch.get(columns).extent) >= PART:
            # Channels of a part are a decision, and these are the default's.
            sch.annotate(columns, TRANSPOSE, TO_PIXELS if tiles.prepacked else TO_PIXELS_IF_WHOLE)
    return outer, lane


def _data(sch: Schedule, tiles: WinogradWindow, task: LoopRV | None, target: CpuTarget) -> tuple[LoopRV, LoopRV]:
    """Transform data: a task's rows of it, or all of it first, in parallel (`task` None); return the loops over its tiles."""
    full, channels = target.vector_bits // 32, tiles.channels
    block = sch.get_sblock(stage_name(DATA_TILES, tiles.index))
    if task is not None:
        sch.compute_at(block, task, preserve_unit_loops=True)
    a, b, n, *phases, z, row, column, c = sch.get_loops(block)[-9:]
    vector, lane = sch.split(c, [None, min(full, channels & -channels)])
    sch.reorder(n, *phases, z, row, column, vector, a, b, lane)
    if task is None:
        sch.parallel(sch.fuse(n, *phases, z, row, column))
    if channels % LINE == 0:
        sch.storage_align(block, 0, axis=-2, factor=TWO_LINES, offset=LINE)
    transform_in_registers(sch, block, sch.get_sblock(stage_name(DATA_ROWS, tiles.index)), vector, [a, b, lane])
    padded_data(sch, tiles, task, target)
    return row, column


def padded_data(sch: Schedule, tiles: WinogradWindow, task: LoopRV | None, target: CpuTarget) -> None:
    """Copy data, padded, where it is: a task's rows of it, or all of it first (`task` None)."""
    if not tiles.stages_data:
        return
    pad = sch.get_sblock(stage_name(DATA_PAD, tiles.index))
    if task is not None:
        sch.compute_at(pad, task, preserve_unit_loops=True)
    else:
        n, z, y, *_ = sch.get_loops(pad)
        sch.parallel(sch.fuse(n, z, y))
        steps.spread_pixels(sch, pad, tiles)
    steps.by_pixels(sch, pad, tiles, target)


def transform_in_registers(sch: Schedule, block: SBlockRV, rows: SBlockRV, vector: LoopRV, loops: list[LoopRV]) -> None:
    """Compute all points of one vector in straight-line code, along the first axis in registers."""
    sch.set_scope(rows, 0, "local")
    sch.compute_at(rows, vector, preserve_unit_loops=True)
    a, x, *_, lane = sch.get_loops(rows)[len(sch.get_loops(block)) - len(loops) :]
    in_registers(sch, [a, x, lane])
    in_registers(sch, loops)
    spread_points(sch, block)


def spread_points(sch: Schedule, block: SBlockRV) -> None:
    """Put the points' values of `block` (axes 0 and 1) into different sets of the cache."""
    sch.storage_align(block, 0, axis=1, factor=TWO_LINES, offset=LINE)
