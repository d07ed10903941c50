"""Plan direct's loops, for both estimate and schedule: choices, the default of least cost, and the order of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import gcd, prod
from typing import TypeVar

from ...targets.target import CpuTarget
from ..shapes import IN_FLIGHT, divisors, part_counts
from .grouped_plan import grouped_plan, grouped_vectors
from .model.cost import imbalance, lines, weigh
from .model.tasks import TASKS, rows_first, task_cycles, vector_counts
from .windows.plan import DirectPlan, Options
from .windows.tile import LEAST_GAIN, tile_cycles, widths
from .windows.window import FEW_PIXELS, Window

W = TypeVar("W", bound=Window)

# Most products of an element of data for which tasks copy their own parts.
MOST_COPIED_PRODUCTS = 128
# Most chunks of output channels. (25 blocks of 1000 classes in 5 chunks would leave three to one of two threads.)
MOST_CHUNKS = 64
LEAST_ROWS = 8  # for which a filter is taken tap by tap


def plan_windows(windows: Sequence[W], target: CpuTarget) -> list[W]:
    """Return the windows with their plans, the best first; tiles of all windows have equally many vectors of channels."""
    if not windows:
        return []
    parts = [window.padded_outputs // window.lanes for window in windows]
    vectors, plan = (grouped_vectors, grouped_plan) if windows[0].across else (_vectors, plan_of)
    counts = [count for count in vectors(windows[0], target) if all(part % count == 0 for part in parts)] or [1]
    return [replace(window, plans=tuple(plan(window, count, target) for count in counts)) for window in windows]


def _vectors(window: Window, target: CpuTarget) -> list[int]:
    """Return the numbers of vectors of channels that a tile may have, the best first."""
    if window.whole_image:
        counts = divisors(window.padded_outputs // window.lanes, IN_FLIGHT)
        pixels = window.row * window.axes[-2].outputs
        return [next((count for count in counts if count * pixels >= IN_FLIGHT), 1)]
    counts = vector_counts(window, target)[:3]
    one_row = window.problem.batch * prod(axis.outputs * axis.phases for axis in window.axes[:-1]) == 1
    one_tile = one_row and all(window.row in widths(window, count, target) for count in counts)
    blocks = window.groups * window.padded_outputs // window.lanes
    if not one_tile and counts and _passes_again(window, counts[0], target):
        kept = (v for v in counts if _stays(window, v, target) and v * widths(window, v, target)[0] >= IN_FLIGHT)
        best = next(kept, counts[0])
        return sorted(counts, key=lambda count: count != best)
    if not one_tile or not counts or blocks // counts[0] >= TASKS:
        return counts
    # All pixels are one tile: threads can only share its vectors of channels, of which the best tile leaves few.
    cycles = {count: _shared_cycles(window, count, target) for count in counts}
    least = min(cycles.values())
    best = next(count for count in counts if cycles[count] * (1 - LEAST_GAIN) <= least)
    return sorted(counts, key=lambda count: count != best)


def _shared_cycles(window: Window, vectors: int, target: CpuTarget) -> float:
    """Return the cycles of a tile of the whole row by so many vectors, times the imbalance of the threads."""
    chunks = part_counts(window.padded_outputs // window.lanes // vectors, MOST_CHUNKS, TASKS)
    return tile_cycles(window, window.row, vectors, target) * min(map(imbalance, (c * window.groups for c in chunks)))


def _passes_again(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Return whether each of a few rows reads the filter from L3, in tiles of fewer pixels than vectors."""
    rows = prod(axis.outputs for axis in window.axes[:-1])
    few = 1 < rows < LEAST_ROWS and widths(window, vectors, target)[0] < vectors
    return few and not _stays(window, vectors, target)


def _stays(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Return whether L2 keeps the filter of a tile's channels for the next row."""
    return 4 * window.products * vectors * window.lanes <= 2 * target.l2_share


def plan_of(window: Window, vectors: int, target: CpuTarget) -> DirectPlan:
    """Return the plan of a window with tiles of so many `vectors` of channels."""
    tiles = widths(window, vectors, target)[:4]
    rank, block = len(window.axes), vectors * window.lanes
    tap_by_tap = _is_deep(window, vectors, target) and not (window.whole_image or window.ordered or window.sums_filter)
    chunks = part_counts(window.padded_outputs // block, MOST_CHUNKS, TASKS)
    rows = divisors(window.axes[-2].outputs, 64) if rank > 1 else [1]
    if window.whole_image:
        rows = rows[-1:]
    parts, default_parts = _row_parts(window, tiles)
    copied = _copied_parts(window, parts, target)
    by_blocks = window.by_blocks or window.packs_parts or copied > 0
    widths_of_tasks, images = [tiles[0]], 1
    if by_blocks:
        finer = [count for count in parts if count > default_parts] if window.large and not copied else []
        widths_of_tasks, images = [window.row // count for count in (default_parts, *finer)], _images(window)
    best_chunks, best_rows, width, by_phase = min(
        product(chunks, rows, widths_of_tasks, (False,) if window.whole_image else (False, True)),
        key=lambda way: task_cycles(window, way[0], way[1], way[2], target, way[3], images),
    )
    if by_blocks:
        default_parts = window.row // width
    if copied:
        default_parts, best_chunks = copied, 1
    elif tap_by_tap and not window.by_parts:
        best_chunks = max(count for count in chunks if count <= MOST_CHUNKS // 4)
        rows = sorted({*rows, window.axes[-2].outputs})
        ways = rows[-1:] if window.packs_parts else rows  # each task packs its part of the filter
        best_rows = min(ways, key=lambda each: _tap_by_tap_cycles(window, best_chunks, each, target))
    elif window.packs_parts and window.reads_rows and "filter_parts" in target.costs.pays:
        size = 4 * window.products * window.padded_outputs
        few = (count for count in chunks if best_chunks <= count <= MOST_CHUNKS // 2)
        fitting = (count for count in few if size // count <= _copied_at_once(target))
        best_chunks = next(fitting, best_chunks)
    # Without a choice, one part.
    elif not window.large:
        default_parts = 1
    pixel_parts = 1 if copied else _pixel_parts(window, tiles, target)
    if pixel_parts > 1 and by_blocks:
        default_parts = pixel_parts
        parts = [*parts, default_parts] if default_parts not in parts else parts
    filter_bytes = 4 * window.products * window.padded_outputs // best_chunks
    # Planar data is copied element by element: before all tasks if several use the same.
    planar = window.problem.data_format == "NCX" and best_chunks > 1
    # Sums that skip wide padding are short beside tasks' own copies of the same data.
    padded = window.skips_columns and best_chunks > 1
    # Up to 4 channels a step: 112 multiply-adds of a full tile, and four uses of each cache line of data.
    unrolls = divisors(window.channels, target.isa.steps_together)
    return DirectPlan(
        vectors=vectors,
        tiles=(tiles, tiles[0]),
        unrolls=(unrolls, unrolls[-1]),
        chunks=(chunks, best_chunks),
        rows=(rows, best_rows),
        tap_by_tap=tap_by_tap,
        rows_first=rows_first(window, target, window.axes[-2].outputs // best_rows if rank > 1 else None),
        by_phase=by_phase,
        by_blocks=by_blocks,
        parts=(parts, default_parts),
        images=images,
        pixel_parts=pixel_parts,
        groups_together=rank == 1 and not by_blocks and _groups_together(window, target),
        filter_at_once=window.reads_rows and filter_bytes <= _copied_at_once(target),
        data_at_once=(rank == 1 and not copied)
        or tap_by_tap
        or window.by_parts
        or window.whole_image
        or planar
        or padded
        or window.copied_once,
    )


def _is_deep(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Return whether the filter of a tile's channels leaves L2 before the next tile uses it, but one tap's stays.

    Sums in memory, tap by tap, are then worth it if several rows use the filter.
    """
    one_tap = 4 * window.channels * vectors * window.lanes
    rows = prod(axis.outputs for axis in window.axes[:-1])
    simple = len(window.axes) > 1 and all(axis.phases == 1 for axis in window.axes)
    kept = _stays(window, vectors, target)
    return simple and one_tap <= target.l2_share and not kept and rows >= LEAST_ROWS


def _tap_by_tap_cycles(window: Window, chunks: int, rows: int, target: CpuTarget) -> float:
    """Return the cycles of tasks of so many rows and one of `chunks` parts of the channels, each of which reads its filter."""
    problem, outer = window.problem, window.axes[:-1]
    bands = problem.batch * window.groups * prod(axis.outputs for axis in outer) // rows
    vectors = window.padded_outputs // window.lanes
    filters = lines(window.element_bytes * window.padded_outputs * window.products) * target.costs.lines.l3
    return weigh(bands * (rows * window.row * window.products * vectors + filters), bands * chunks)


def _copied_parts(window: Window, parts: Sequence[int], target: CpuTarget) -> int:
    """Return which of `parts` a row is cut into if tasks copy their parts of data; 0 if data is copied before.

    Tasks do if L2 cannot keep the whole copy and few products use an element, but half of L2 keeps a part, and there are TASKS parts.
    Single taps, whose copies are read once, are excluded, and shifted tiles, for which TVM finds no extent of a part.
    """
    axis, problem = window.axes[-1], window.problem
    measured = "data_parts" in target.costs.pays and problem.groups == axis.phases == 1
    one_row = len(window.axes) == 1 and axis.taps > 1 and window.stages_data and not window.tile
    few = window.padded_outputs * axis.taps <= MOST_COPIED_PRODUCTS * axis.stride
    size = 4 * axis.extent * window.pixel
    if not (measured and one_row and few and size > target.l2):
        return 0
    return min(
        (count for count in parts if count >= TASKS and size // count <= target.l2 // 2), key=imbalance, default=0
    )


def _groups_together(window: Window, target: CpuTarget) -> bool:
    """Return whether tasks take all groups of a few pixels, whose channels share cache lines, before the next pixels.

    L2 must keep the filters of all groups.
    """
    filters = 4 * prod(window.problem.filter_shape)
    return window.groups > 1 and window.problem.data_format == "NXC" and filters <= target.l2_share // 2


def _copied_at_once(target: CpuTarget) -> int:
    """Return the most bytes of the filter that a task copies as one part, so that pieces of the filter's rows are long.

    That is the share of L2; more where that was measured to pay, as L3 is hardly slower there.
    """
    return 2 * target.l2 if "large_filter_parts" in target.costs.pays else target.l2_share


def _images(window: Window) -> int:
    """Return the number of images whose row is a task, so that it has more than a few pixels."""
    counts = divisors(window.problem.batch, window.problem.batch)
    return next((count for count in counts if count * window.row >= FEW_PIXELS), max(counts, default=1))


def _counts_of_parts(window: Window, tiles: list[int]) -> list[int]:
    """Return the numbers of parts of whole tiles, for tiles of any width, that a row may be cut into."""
    return divisors(gcd(*(window.row // tile for tile in tiles)), window.row)


def _row_parts(window: Window, tiles: list[int]) -> Options:
    """Return the numbers of parts that a row may be cut into for tasks, and the default."""
    counts = _counts_of_parts(window, tiles)
    few = [count for count in counts if window.row // count >= FEW_PIXELS // 4] or [1]
    return few, max((count for count in few if window.row // count >= FEW_PIXELS), default=1)


def _pixel_parts(window: Window, tiles: list[int], target: CpuTarget) -> int:
    """Return the number of parts of the only row of planes that threads share; 1 if they share channels."""
    if len(window.axes) > 1 or window.problem.data_format == "NXC":
        return 1
    counts = _counts_of_parts(window, tiles)
    return max((count for count in counts if rows_first(window, target, count)), default=1)
