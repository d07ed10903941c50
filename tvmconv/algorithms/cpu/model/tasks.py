"""Estimate, roughly, the cost of tasks on a CPU and the work that threads share: default decisions, and choices worth a try.

Counted in cycles of one core that starts one full-vector multiply-add each (tile.py).
"""

from __future__ import annotations

from math import prod

from ....targets.target import CpuTarget
from ...shapes import divisors
from ...subconvolution import SubConvolution
from ..windows.tile import reads_in_place, tile_cycles, widths
from ..windows.window import Window
from .cost import LEAST_TASK, MANY, THREADS, lines, weigh
from .counts import TASK_ROWS, copy_extent

EXPANSION = 6  # of channels before a depthwise layer, of which the layer behind leaves so few again: MobileNets
FEW_AGAIN = 4  # rows of a task for each that it reads as others do, too
TASKS = 8  # at least, where there are as many: two threads to eight find a share


def vector_counts(window: Window, target: CpuTarget) -> list[int]:
    """Return how many vectors of channels a tile may have, the best by the model first."""
    counts = [v for v in divisors(window.padded_outputs // window.lanes, 8) if widths(window, v, target)]
    return sorted(counts, key=lambda v: tile_cycles(window, widths(window, v, target)[0], v, target))


def task_cycles(
    window: Window, chunks: int, rows: int, width: int, target: CpuTarget, by_phase: bool = False, images: int = 1
) -> float:
    """Cycles of a whole window cut into tasks of one `chunks`-th of the channels and `rows` rows.

    With `by_phase`, a task has one phase of each axis but the last. A window of one axis has no rows, but `width` elements of
    it, of some `images`.
    """
    problem, axes = window.problem, window.axes
    outer = axes[:-1]
    phases = prod(axis.phases for axis in axes)
    macs = phases * prod(axis.outputs for axis in axes) * prod(axis.taps for axis in axes) * window.channels
    compute = problem.batch * window.groups * window.padded_outputs * macs / window.lanes
    blocks = outer[-1].outputs // rows if outer else window.row // width
    spread = problem.batch // images * window.groups * prod(axis.outputs for axis in outer[:-1])
    parts = chunks * (prod(axis.phases for axis in outer) if by_phase else 1)
    tasks = spread * parts * blocks
    filter_bytes = window.element_bytes * window.padded_outputs * window.products
    line = target.costs.lines
    read = line.l2 if filter_bytes / parts <= target.l2_share else line.l3
    filters = spread * blocks * lines(filter_bytes) * (read + window.packs_parts * line.part)
    copy = 0.0
    if window.stages_data and outer and not reads_in_place(window):
        strip = (rows - 1) * outer[-1].stride + outer[-1].span
        copied = strip * axes[-1].extent * window.channels * (window.padded_outputs if window.expands else 1)
        depth = prod(axis.span for axis in outer[:-1])
        copy = tasks * depth * lines(2 * 4 * copied) * line.copy
    many = not (
        window.packs_parts and window.reads_rows
    )  # smaller tasks would read shorter pieces of a plain filter's rows
    return weigh(compute + filters + copy, tasks, many) + tasks * target.costs.task / THREADS[0]


def rows_first(window: Window, target: CpuTarget, passes: int | None = None) -> bool:
    """Return whether threads share rows, of all output channels, and not channels of all rows.

    Tasks would then read the filter `passes` times; None: it is not known how often, and planes are shared by channels.

    Where all layers of a network do so, a thread finds what the layer before wrote in its own L2, several times as
    fast as in another core's (benchmarks/results/coefficients.md). But then each thread reads the whole filter, which must be less than data and outputs, and stay in L2 for the next rows.

    Depthwise, filters are small, but what is around such a layer in a network decides, too. Rows of planes, NCX, share lines with
    those of other threads; of planes that are copied to pixels before, see `_own_copies`.
    """
    problem = window.problem
    filters = prod(problem.filter_shape)
    if problem.data_format == "NCX":
        return passes is not None and _own_copies(window, target, passes)
    if window.element_bytes * filters // window.vnni_factor > target.l2_share:
        return False
    if window.across:
        filters = max(filters, problem.in_channels * problem.out_channels // EXPANSION)
    data = problem.in_channels * prod(problem.in_spatial)
    return filters <= data + problem.out_channels * prod(problem.out_spatial)


def _own_copies(window: Window, target: CpuTarget, passes: int) -> bool:
    """Return whether threads share the pixels of planes that they copied.

    Where they share channels, each reads all of the copy, half of which another wrote. Where they share pixels, tasks read the
    filter `passes` times, from L3 if L2 does not keep it.
    """
    if window.across or window.packs_parts or not window.stages_data:
        return False
    line, filters = target.costs.lines, window.element_bytes * window.groups * window.padded_outputs * window.products
    copied = window.element_bytes * window.problem.batch * prod(map(copy_extent, window.axes)) * window.pixel
    return filters <= target.l2_share or passes * lines(filters) * line.again <= lines(copied) * line.l3


def task_rows(window: SubConvolution, lanes: int, together: int = 1, most: int = TASK_ROWS) -> tuple[list[int], int]:
    """Return how many times `together` rows a task of all channels may have, and the default, of multiply-adds of so many `lanes`.

    That is as many as are at most `most` rows, and leave TASKS; fewer for more threads, where few rows of data are then read again.
    """
    if len(window.axes) == 1:
        return [1], 1
    axis = window.axes[-2]
    rows = divisors(axis.outputs // together, 64)
    total = window.problem.batch * window.groups * prod(each.outputs for each in window.axes[:-1]) // together
    default = max(r for r in rows if r == 1 or (r * together <= most and total // r >= TASKS))
    wanted = min(MANY[-1], int(window.problem.flops / 2 / lanes / LEAST_TASK))
    finer = [r for r in rows if r < default and r * together >= FEW_AGAIN * (axis.span - axis.stride) / axis.stride]
    fitting = [r for r in finer if total // r <= wanted]
    return rows, min(fitting, default=default)
