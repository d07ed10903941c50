"""Rough costs of tasks on a CPU, for default decisions and the choices that are worth a try.

They are in cycles of a core that starts one multiply-add of a whole vector per cycle (tile.py).
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

EXPANSION = 6  # factor of channels before a depthwise layer, which the layer after it reverts: MobileNets
FEW_AGAIN = 4  # rows of a task for each row that other tasks read as well
TASKS = 8  # at least, if possible, so that two to eight threads find a share


def vector_counts(window: Window, target: CpuTarget) -> list[int]:
    """Return the numbers of vectors of channels that a tile may have, the best by the model first."""
    counts = [v for v in divisors(window.padded_outputs // window.lanes, 8) if widths(window, v, target)]
    return sorted(counts, key=lambda v: tile_cycles(window, widths(window, v, target)[0], v, target))


def task_cycles(
    window: Window, chunks: int, rows: int, width: int, target: CpuTarget, by_phase: bool = False, images: int = 1
) -> float:
    """Return the weighted cycles of a window cut into tasks of one `chunks`-th of the channels and `rows` rows.

    With `by_phase`, a task has one phase of each axis but the last. With one axis, a task has no rows but `width` elements of the
    row, of some `images`.
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
    # Smaller tasks would read shorter pieces of a plain filter's rows.
    many = not (window.packs_parts and window.reads_rows)
    return weigh(compute + filters + copy, tasks, many) + tasks * target.costs.task / THREADS[0]


def rows_first(window: Window, target: CpuTarget, passes: int | None = None) -> bool:
    """Return whether threads share rows with all output channels, rather than channels with all rows.

    Tasks would then read the filter `passes` times; None: the number is unknown, and planes are shared by channels.

    If all layers of a network share rows, a thread finds the output of the layer before in its own L2, several times as
    fast as in another core's (benchmarks/results/coefficients.md). But each thread then reads the whole filter, which must be smaller than
    data and outputs, and stay in L2 for the next rows.

    Depthwise filters are small, but the layers around count too. Rows of planes share lines with those of other threads; for planes that
    are copied to pixels first, see `_own_copies`.
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
    """Return whether threads share pixels of planes, each using its own copy.

    If threads share channels, each reads the whole copy, half of which another one wrote. If they share pixels, tasks read the
    filter `passes` times, from L3 if L2 does not keep it.
    """
    if window.across or window.packs_parts or not window.stages_data:
        return False
    line, filters = target.costs.lines, window.element_bytes * window.groups * window.padded_outputs * window.products
    copied = window.element_bytes * window.problem.batch * prod(map(copy_extent, window.axes)) * window.pixel
    return filters <= target.l2_share or passes * lines(filters) * line.again <= lines(copied) * line.l3


def task_rows(window: SubConvolution, lanes: int, together: int = 1, most: int = TASK_ROWS) -> tuple[list[int], int]:
    """Return the multiples of `together` rows that a task of all channels may have, and the default, for vectors of `lanes`.

    The default is the most that are at most `most` rows and leave TASKS; fewer for more threads, if few rows of data are then read again.
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
