"""Cost of Winograd's tiles by halves: products as in amx_cost.py, transforms as in winograd_cost.py."""

from __future__ import annotations

from collections.abc import Sequence

from ....problem import Problem
from ....targets.target import CpuTarget
from ..amx_cost import L1_KEPT, chunk_counts, costs_of_tiles
from ..amx_window import PAIR_BYTES, SIDE
from ..model.cost import THREADS, Counts, imbalance, lines, total
from .winograd_cost import count_moves
from .winograd_halves_window import HALVES, WinogradHalvesWindow


def counts(problem: Problem, windows: Sequence[WinogradHalvesWindow], target: CpuTarget) -> Counts:
    """Count the events of a problem's windows."""
    products = sum(cycles(window, best_chunks(window, target), target) for window in windows)
    together = windows[0].block[1] * SIDE if windows else 0
    return total({"amx.scale": products}, *count_moves(problem, windows, together, target))


def best_chunks(window: WinogradHalvesWindow, target: CpuTarget) -> int:
    """Return the number of parts of the output channels, one for a task, of least cost."""
    return min(chunk_counts(window.output_blocks), key=lambda chunks: cycles(window, chunks, target))


def cycles(window: WinogradHalvesWindow, chunks: int, target: CpuTarget) -> float:
    """Return the cycles of a window whose output channels are cut into `chunks` parts."""
    line, points, (tiles, vectors) = target.costs.lines, target.costs.points, window.block
    costs, (bands, count) = costs_of_tiles(target), window.numbered
    tasks = window.problem.batch * window.groups * window.axes[0].outputs * bands * chunks
    outputs = window.output_blocks // chunks

    # A task transforms the data of its tiles, for each tap of the first axis and each part of the outputs again.
    transformed = window.points * count * window.depth * window.phases_of_data * window.channels
    data = transformed / window.distance * (points.data + costs.copy)
    # A block reads transformed data, beside its sums, which pass through L2, and its filters.
    block = window.phases * (window.points * count * 4 * SIDE * vectors) + window.filter_bytes / window.output_blocks
    data_bytes = transformed * PAIR_BYTES
    passes = outputs if data_bytes + block > target.l2 else 0
    data += lines(data_bytes) * line.l3 * passes

    products = window.points * window.phases * window.depth * window.steps * window.tile_blocks * outputs
    multiplied = max(tiles * vectors * costs.multiply, costs.latency) * len(window.multiplied)
    step_data = lines(tiles * window.tile_rows * PAIR_BYTES * window.depth_of_step * HALVES)
    step_filter = lines(vectors * SIDE * PAIR_BYTES * window.depth_of_step * HALVES)
    kept = window.point_bytes * vectors / (window.padded_outputs // SIDE) <= target.costs.l1 * L1_KEPT
    again = window.tile_blocks - 1 if kept else 0
    from_l2 = step_data * costs.data_line + step_filter * costs.filter_line * (1 - again / window.tile_blocks)
    sums = window.points * window.phases * count * vectors * outputs
    stores = sums * (costs.store + points.output)

    # Filters that do not stay in L2 from task to task are loaded while others are multiplied.
    filter_bytes = window.filter_bytes / window.groups / chunks
    filters = lines(filter_bytes) * line.l3 if data_bytes + filter_bytes > target.l2_share else 0.0
    task = data + max(products * max(multiplied, from_l2), filters) + stores
    return tasks * task * imbalance(tasks) + tasks * target.costs.task / THREADS[0]
