"""Plan planar's loops, for both estimate and schedule: choices, the default, and the order of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ...targets.target import CpuTarget
from ..shapes import divisors
from .model.cost import imbalance, multiply_add
from .model.counts import TASK_ROWS
from .model.tasks import TASKS, task_rows
from .windows.plan import Options, PlanarPlan
from .windows.row_tile import MAX_UNROLLED, channel_counts, shared_rows, vector_counts
from .windows.row_window import PlanarWindow

# Least cycles of the products of an element for which several tasks copy it, which takes about one cycle.
LEAST_SHARING = 8
COPIED_PLANES = 8  # of a task, at most, before it reads them: enough for stores to complete


def plan_windows(windows: Sequence[PlanarWindow], target: CpuTarget) -> list[PlanarWindow]:
    """Return the windows with their plans, in the first window's order of preference; all windows must have registers for a vector."""
    liked = channel_counts(windows[0], target) if windows else []
    counts = [count for count in liked if all(vector_counts(each, count, target) for each in windows)][:3]
    return [replace(window, plans=tuple(_plan(window, count, target) for count in counts)) for window in windows]


def _plan(window: PlanarWindow, channels: int, target: CpuTarget) -> PlanarPlan:
    several, vectors = len(window.axes) > 1, vector_counts(window, channels, target)[:4]
    shared = shared_rows(window, vectors[0], target)
    # Tasks have more rows than usual if L1 holds their copies.
    row_bytes = 4 * window.channels * window.axes[-2].stride * window.axes[-1].extent if several else 1
    rows, most = task_rows(window, window.lanes, shared, max(TASK_ROWS, target.l1_share // 2 // row_bytes))
    if window.row_tile:
        # TVM does not bound a part of such rows.
        rows, most = [window.computed[-1] // shared], window.computed[-1] // shared
    chunks, even = ([1], 1) if several else _task_chunks(window, channels, vectors[0], target)
    copies, body = window.stages_data and not window.panels, channels * vectors[0] * window.tile_phases
    return PlanarPlan(
        channels=channels,
        vectors=(vectors, vectors[0]),
        tile_rows=shared,
        planes=_planes(window, most * shared, target) if several else 1,
        rows=(rows, most),
        chunks=(chunks, even),
        tiles=_task_tiles(window, vectors[0], target) if copies and not several and even == 1 else None,
        taps_unrolled=divisors(window.axes[-1].taps, max(1, MAX_UNROLLED // body))[-1],
        blocks_first=several and _blocks_first(window, most * shared, target),
        planes_by_rows=several and _planes_by_rows(window, target),
        # A task copies its data, so that cores share no cache line, unless tasks with other channels read the same.
        data_at_once=even > 1,
    )


def _planes(window: PlanarWindow, rows: int, target: CpuTarget) -> int:
    """Return the number of groups whose data a task of so many rows copies before it multiplies.

    Loads soon after stores of other widths would wait until these are in the cache.
    """
    axes, problem = window.axes, window.problem
    if not window.stages_data or rows < axes[-2].outputs:
        return 1
    tasks = problem.batch * prod(axis.outputs for axis in axes[:-2])
    size = 4 * window.channels * prod(axis.extent for axis in axes)
    fits = [
        count
        for count in divisors(window.groups, COPIED_PLANES)
        if count * size <= target.l1_share // 2 and tasks * window.groups // count >= TASKS
    ]
    return max(fits, default=1)


def _task_chunks(window: PlanarWindow, channels: int, vectors: int, target: CpuTarget) -> Options:
    """Return the numbers of parts that tasks may cut the channels of a window of one axis into, and the default.

    Few tiles are also cut by channels, for equal shares of threads, unless the additional copies cost more.
    """
    tasks = window.problem.batch * window.groups * window.row // window.lanes // vectors
    chunks = divisors(window.computed_outputs // channels, 16)
    products = window.outputs / window.lanes * multiply_add(window.lanes, target)
    fitting = [chunk for chunk in chunks if chunk == 1 or not window.panels or chunk * LEAST_SHARING <= products]
    return chunks, min(fitting, key=lambda chunk: (round(imbalance(tasks * chunk), 1), chunk))


def _planes_by_rows(window: PlanarWindow, target: CpuTarget) -> bool:
    """Return whether a task takes all tiles of a row for a block, which write planes' rows whole, before the next block.

    That is if outputs exceed L2 and L1 keeps the row's data for the next block. Not measured with AVX-512.
    """
    axes, problem = window.axes, window.problem
    held = 4 * window.channels * prod(axis.span for axis in axes[:-1]) * axes[-1].extent
    image = 4 * prod(problem.output_shape) // max(problem.batch, 1)
    return "planes_by_rows" in target.costs.pays and held <= target.l1_share and image > 2 * target.l2_share


def _blocks_first(window: PlanarWindow, rows: int, target: CpuTarget) -> bool:
    """Return whether a task takes all its rows for a block of channels before the next block: data has few channels.

    Each plane of the output is then written in one piece, and L1 keeps the data for the next block.
    """
    axis = window.axes[-2]
    planes = prod(each.span for each in window.axes[:-2])
    held = ((rows - 1) * axis.stride + axis.span) * planes * window.axes[-1].extent
    return 4 * window.channels * held <= target.l1_share


def _task_tiles(window: PlanarWindow, vectors: int, target: CpuTarget) -> Options:
    """Return the numbers of a row's tiles of so many vectors that a task may have, and the default.

    Their data fills at most half of L2, and at least TASKS tasks remain.
    """
    tiles = window.row // window.lanes // vectors
    tasks = window.problem.batch * window.groups * tiles
    counts, tile_bytes = divisors(tiles, 64), 4 * window.channels * window.axes[-1].stride * window.lanes * vectors
    fitting = [n for n in counts if n == 1 or (n * tile_bytes <= target.l2_share // 2 and tasks // n >= TASKS)]
    return counts, min(fitting, key=lambda n: (round(imbalance(tasks // n), 1), -n))
