"""Choose the tasks and tiles of windows for AMX, by an estimate of their cycles.

The bound of most sums is not the multiplication of tiles but L2, which the filter and some of the data come from, or rows of tiles that cross
cache lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from ...problem import Problem
from ...targets.costs import Amx
from ...targets.target import CpuTarget
from ..quads import QuadTypes, quad_types
from ..shapes import divisors
from .amx_window import PAIR_BYTES, SIDE, AmxWindow
from .model.cost import THREADS, imbalance, lines
from .model.counts import outputs
from .windows.window import Window

# (tiles of pixels, tiles of outputs) whose sums and operands fit the registers, the best first.
BLOCKS = ((2, 2), (1, 4), (4, 1), (1, 3), (3, 1), (1, 2), (2, 1), (1, 1))
MOST_CHUNKS = 16
L1_KEPT = 5 / 6  # part of L1 whose content is still there when it is used again


def tile_window(window: Window, target: CpuTarget, product_order: int) -> AmxWindow:
    """Return a window with the bands and blocks of least cost, for products of terms up to an order."""
    rows = window.axes[0].outputs
    bands = {-(-rows // count) for count in range(1, min(rows, 64) + 1)}
    axis, quads = window.axes[-1], tile_quads(window.problem, target)
    kind = {"lanes": SIDE, "vnni_factor": 4 if quads else 2, "quads": quads, "product_order": product_order}
    together = [False, True] if axis.taps > 1 and axis.phases == axis.dilation == 1 else [False]
    # Few outputs are one tile: 32 to 2 channels at 224x224 take 40 us on two cores, by `reduced` 312.
    blocks = [block for block in BLOCKS if block[1] == 1 or window.outputs >= SIDE]
    by_rows = [False, True] if len(window.axes) > 1 else [False]
    ways = product(sorted(bands), blocks, together, by_rows)
    tiled = [
        window.as_kind(AmxWindow, **kind, rows=rows, block=block, row_taps=taps, by_rows=apart)
        for rows, block, taps, apart in ways
    ]
    return min(tiled, key=lambda each: best_cut(each, target).cycles)


def tile_quads(problem: Problem, target: CpuTarget) -> QuadTypes | None:
    """Return the types that tiles multiply quads of integers as; None if they cannot."""
    return quad_types(problem, target.isa.tiles.multiply) if target.isa.tiles else None


@dataclass(frozen=True)
class Cut:
    """Division of a window into tasks.

    Attributes
    ----------
    chunks
        Parts of the output channels; a task has one.
    pixels_first
        Whether a task computes all pixels of a block of outputs before the next outputs, or all outputs of a block of pixels.
    cycles
        Cycles of the window.
    """

    chunks: int
    pixels_first: bool
    cycles: float


def best_cut(window: AmxWindow, target: CpuTarget) -> Cut:
    """Return the cut of least cost."""
    ways = product(chunk_counts(window.output_blocks), (False, True))
    return min((Cut(*way, cycles(window, *way, target)) for way in ways), key=lambda cut: cut.cycles)


def chunk_counts(output_blocks: int) -> list[int]:
    """Return the numbers of parts that blocks of outputs may be cut into for tasks."""
    return divisors(output_blocks, MOST_CHUNKS)


def cycles(window: AmxWindow, chunks: int, pixels_first: bool, target: CpuTarget) -> float:
    """Return the cycles of a window with this cut."""
    costs, line, problem, (tiles, vectors) = costs_of_tiles(target), target.costs.lines, window.problem, window.block
    phases = prod(axis.phases for axis in window.axes)
    tasks = problem.batch * window.groups * window.bands * chunks
    blocks = phases * prod(each.outputs for each in window.outer) * window.tile_blocks * window.output_blocks
    products = prod(window.taps) * window.steps
    multiplied = max(tiles * vectors * costs.multiply, costs.latency) * len(window.multiplied)
    crossed = tiles * window.terms * window.tile_rows * window.crossing_rows * costs.crossing_row
    step = max(multiplied, crossed, _loads(window, pixels_first, target) / products)
    if window.stores_planes:
        store = costs.store_planes
    elif problem.data_format == "NCX":
        store = costs.store_strided
    elif vectors * SIDE % window.line_channels or window.shifted:
        store = costs.store_half_late if pixels_first else costs.store_half
    else:
        store = costs.store
    stores = tiles * window.tile_rows * vectors * store
    copied = costs.copy if window.terms == 1 else costs.split
    copy = _copied_vectors(window) * copied * (4 if problem.data_format == "NCX" else 1)
    filters = lines(window.filter_bytes) / chunks * line.l3
    if window.filter_bytes <= target.l2_share and not window.chunks_first:
        filters = 0.0  # a thread's other tasks find it in L2
    elif window.filter_bytes <= chunks * target.l2_share and window.chunks_first:
        filters /= window.bands * problem.batch
    elif window.filter_bytes > chunks * target.l2_share and not pixels_first:
        filters *= window.tile_blocks * prod(each.outputs for each in window.outer)
    data = _data_cycles(window, target) / window.bands
    task = blocks / chunks * (products * step + stores) + copy + data + filters
    return (
        tasks * (task + _shared_lines(window, chunks) * costs.shared_line / tasks) * imbalance(tasks)
        + tasks * target.costs.task / THREADS[0]
    )


def _copied_vectors(window: AmxWindow) -> float:
    """Return the number of vectors that copy a band: a group's few channels fill a part of each; LLVM joins pixels whose taps are together."""
    together = window.row_taps or window.problem.data_format == "NCX"
    return window.copied_pairs / (SIDE if together else min(SIDE, window.most_lanes, window.pixel & -window.pixel))


def _data_cycles(window: AmxWindow, target: CpuTarget) -> float:
    """Return the cycles of a group's lines of data: channels of several groups share lines, which a cache keeps if it keeps the image."""
    line, pixels = target.costs.lines, prod(axis.outputs for axis in window.axes)
    if window.groups == 1 or window.problem.data_format == "NCX" or pixels <= lines(window.data_bytes):
        return lines(window.data_bytes) * line.l2
    return pixels * (line.l2 if window.data_bytes * window.groups <= target.l2_share else line.l3)


def _shared_lines(window: AmxWindow, chunks: int) -> float:
    """Return the number of lines of the output that several threads write to, as their parts of a pixel share lines."""
    part = window.output_blocks // chunks * window.block[1] * SIDE
    whole = window.whole_lines and part % window.line_channels == 0
    if chunks == 1 or whole or window.problem.data_format == "NCX":
        return 0.0
    return outputs(window) * window.groups * chunks


def _loads(window: AmxWindow, pixels_first: bool, target: CpuTarget) -> float:
    """Return the cycles of the lines of a block's sums that come from L2."""
    costs, (tiles, vectors), last = costs_of_tiles(target), window.block, window.copy_axes[-1]
    pixels = tiles * window.tile_rows * last.advance + window.axes[-1].taps - 1
    data = prod(window.taps[:-1]) * pixels * window.pixel * window.terms * PAIR_BYTES
    weights = prod(window.taps) * window.pairs * vectors * SIDE * window.terms * PAIR_BYTES
    kept = data + weights <= target.costs.l1 * L1_KEPT
    from_l2 = lines(0 if kept and not pixels_first else data) * costs.data_line
    return from_l2 + lines(0 if kept and pixels_first else weights) * costs.filter_line


def costs_of_tiles(target: CpuTarget) -> Amx:
    """Return the costs of tiles, of the nearest CPU with tiles."""
    assert target.costs.amx is not None, f"no row of costs has tiles of AMX, for {target.name}"
    return target.costs.amx
