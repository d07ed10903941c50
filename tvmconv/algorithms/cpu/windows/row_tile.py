"""Tiles of windows whose lanes run along a row: numbers of channels and vectors, their costs, and rows rounded up to tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod

from ....targets.cpus import TLB_PAGES
from ....targets.target import CpuTarget
from ...shapes import F32_BITS, SSE_LANES, divisors, lane_count
from ..model.cost import multiply_add, tile_step
from ..model.tasks import TASKS
from .row_window import MOST_CHANNELS, PlanarWindow
from .tile import LEAST_GAIN

MAX_UNROLLED = 128  # multiply-adds in a loop body; more only grows the code
# Most multiply-adds of a tile that a core overlaps with the next one; those of 31x31 taps wait for each other.
SHORT_TILE = 512


def rounded_up(window: PlanarWindow, target: CpuTarget) -> PlanarWindow:
    """Return the window with its row rounded up to whole vectors."""
    outputs, full = window.axes[-1].outputs, target.vector_bits // F32_BITS
    if outputs < full or not window.contiguous:
        lanes = lane_count(outputs, target)
        # Depthwise rows take two vectors that overlap, or one with unused lanes, for which the copy of data is longer.
        halves = window.outputs == 1 and lanes > max(SSE_LANES, outputs) and window.contiguous
        ways = [
            replace(window, lanes=each, row=-(-outputs // each) * each) for each in (lanes, lanes // 2)[: 1 + halves]
        ]
        return min(ways, key=lambda each: _row_cycles(each, target))
    window = replace(window, panels=_wants_panels(window, target))
    # Some more vectors, which overlap others, if they divide into better tiles.
    least = -(-outputs // full)
    rows = [replace(window, lanes=full, row=vectors * full) for vectors in range(least, least + 4)]
    rows = [each for each in rows if each is rows[0] or each.overlaps]
    return min(rows, key=lambda each: each.row * _best_cycles(each, target))


def tiled_by_channels(windows: Sequence[PlanarWindow], target: CpuTarget) -> list[PlanarWindow]:
    """Return windows with rows rounded up and, if that is worth it, tiles of channels of which the last is shifted.

    19 or 37 channels divide only into tiles of one channel, which load data for each multiply-add; 7 vectors of a row suit three channels.
    """
    ways = [windows]
    if windows and windows[0].outputs > MOST_CHANNELS:
        most = max(1, MOST_CHANNELS // max(window.tile_phases for window in windows))
        counts = [count for count in range(2, most + 1) if windows[0].outputs % count]
        ways += [[replace(window, channel_tile=count) for window in windows] for count in counts]
    rounded = [[rounded_up(window, target) for window in way] for way in ways]

    def cycles(way: Sequence[PlanarWindow]) -> float:
        return sum(each.row * each.computed_outputs * _best_cycles(each, target) for each in way)

    best = min(rounded, key=cycles)
    return best if cycles(best) < cycles(rounded[0]) * (1 - LEAST_GAIN) else rounded[0]


def _best_cycles(window: PlanarWindow, target: CpuTarget) -> float:
    """Return `tile_cycles` of the tile that costs least."""
    return min(tile_cycles(window, *tile, target) for tile in tiles(window, target))


def _row_cycles(window: PlanarWindow, target: CpuTarget) -> float:
    """Return the cycles of a depthwise row: its multiply-adds, and the copy of its data."""
    taps, axis = prod(axis.taps for axis in window.axes), window.axes[-1]
    products = taps * window.row / window.lanes * multiply_add(window.lanes, target)
    return products + target.costs.elements.copy * (axis.extent + window.excess * axis.stride)


def _wants_panels(window: PlanarWindow, target: CpuTarget) -> bool:
    """Return whether copying each tile's data pays: for one tap, many channels and many outputs, which read it again.

    In place, each channel is on another page, and a tile's part of it consists of parts of cache lines.
    """
    axis, problem = window.axes[-1], window.problem
    single = len(window.axes) == 1 and axis.taps * axis.phases * axis.stride == 1 and not axis.padded
    in_place = single and problem.dtype == "f32" and problem.data_format == "NCX"
    return in_place and "panels" in target.costs.pays and min(window.channels, window.outputs) >= TLB_PAGES


def packed_together(window: PlanarWindow, target: CpuTarget) -> PlanarWindow:
    """Return the window with the number of channels that are adjacent in a packed filter: those of some tiles, for a single address.

    It is one tile's where that pays, so that a tile reads whole cache lines.
    """
    liked = channel_counts(window, target)[0]
    most = liked if "rows_packed_by_tile" in target.costs.pays else MOST_CHANNELS
    together = max(count for count in divisors(window.computed_outputs, most) if count % liked == 0)
    return replace(window, together=together)


def tiles(window: PlanarWindow, target: CpuTarget) -> list[tuple[int, int]]:
    """Return the pairs of channels and vectors of a row that a tile may have.

    Each vector takes a register for its data and one for each sum; another register holds the broadcast.
    """
    registers, phases = target.vector_registers, window.tile_phases
    fitting = []
    counts = divisors(window.outputs, max(1, min(MOST_CHANNELS, registers - 2) // phases))
    for channels in [window.channel_tile] if window.channel_tile else counts:
        most = max(1, (registers - 1) // (channels * phases + 1))
        fitting += [(channels, vectors) for vectors in divisors(window.row // window.lanes, most)]
    return fitting


def channel_counts(window: PlanarWindow, target: CpuTarget) -> list[int]:
    """Return the numbers of channels that a tile may have, the best first."""
    fitting = sorted(tiles(window, target), key=lambda tile: tile_cycles(window, tile[0], tile[1], target))
    return list(dict.fromkeys(channels for channels, _ in fitting))


def vector_counts(window: PlanarWindow, channels: int, target: CpuTarget) -> list[int]:
    """Return the numbers of vectors of a row that a tile of so many channels may have, the best first."""

    def cycles(vectors: int) -> float:
        if _shares_rows(window):
            return short_cycles(window, vectors, shared_rows(window, vectors, target), target)
        return tile_cycles(window, channels, vectors, target)

    fitting = (vectors for each, vectors in tiles(window, target) if each == channels)
    return sorted((vectors for vectors in fitting if _fits(window, window.row_tile, vectors, target)), key=cycles)


def tile_cycles(window: PlanarWindow, channels: int, vectors: int, target: CpuTarget, alone: bool = False) -> float:
    """Return the cost of a tile per multiply-add, in multiply-adds, including loads beside it.

    Shifted vectors cross two cache lines, and come from L2 if the sum has many channels; broadcasts share the load ports. Unless `alone`
    (when tiles are compared), rows of all taps that L1 does not keep for the next channels come from L2 once.
    """
    step, sums = target.costs.rows, channels * window.tile_phases
    row, rows = 4 * window.lanes * vectors * window.channels, _rows_held(window)
    far = row > target.l1_share // 2
    if far and window.panels:
        step, far = replace(step, vector=step.from_l2), False
    elif not far and not alone and row * rows >= target.l1_share:
        first = rows / prod(axis.taps for axis in window.axes)  # of what its taps read again
        step, far = replace(step, far=1 + first * (step.far - 1)), True
    return tile_step(step, vectors, sums, sums * vectors, far=far) / (sums * vectors)


def short_cycles(window: PlanarWindow, vectors: int, rows: int, target: CpuTarget) -> float:
    """Return the cost of a tile of `short_sums`, as `tile_cycles`: its rows share loads of data and one broadcast."""
    sums = rows * vectors * window.tile_phases
    loads = vectors * (_data_rows(window, rows) / window.axes[-2].taps if rows > 1 else 1)
    step = target.costs.shared_rows
    if sums * prod(axis.taps for axis in window.axes) > SHORT_TILE:
        step = replace(step, chain=target.costs.latency * target.multiply_adds)
    return tile_step(step, loads, window.tile_phases, sums) / sums


def short_sums(window: PlanarWindow, rows: int) -> bool:
    """Return whether sums of a tile of `rows` rows are short, over the taps of one channel, so that tiles overlap.

    The start of a tile then costs nothing, nor does the latency of a sum unless the tile has many taps.
    """
    return rows > 1 or window.outputs == window.channels == 1


def shared_rows(window: PlanarWindow, vectors: int, target: CpuTarget) -> int:
    """Return the rows of a depthwise convolution's tile: rows share loads, each of which crosses cache lines.

    Registers hold the sums and, for one tap along the row at a time, the data of all rows and an element of the filter.
    """
    if window.row_tile or not _shares_rows(window):
        return max(window.row_tile, 1)
    counts = divisors(window.axes[-2].outputs, target.vector_registers // 2)
    return max((rows for rows in counts if _fits(window, rows, vectors, target)), default=1)


def _fits(window: PlanarWindow, rows: int, vectors: int, target: CpuTarget) -> bool:
    """Return whether registers hold a tile of `rows` rows that share loads; always for 0, rows that share none."""
    held = rows * vectors * window.tile_phases + vectors * _data_rows(window, rows) + 1 if rows else 0
    return held <= target.vector_registers


def tiled_by_rows(window: PlanarWindow, target: CpuTarget) -> PlanarWindow:
    """Return a depthwise window with tiles of rows of which the last is shifted, if that is worth it: 13 or 19 rows have no divisors.

    A task must have all rows, because TVM does not bound a part of such rows, and half of L1 must hold their copy.
    """
    copied = 4 * prod(axis.span for axis in window.axes[:-2]) * prod(axis.extent for axis in window.axes[-2:])
    tasks = window.problem.batch * window.groups * prod(axis.outputs for axis in window.axes[:-2])
    if not _shares_rows(window) or window.problem.op != "convolution" or copied > target.l1_share // 2 or tasks < TASKS:
        return window

    def cycles(way: PlanarWindow) -> float:
        each = [short_cycles(way, v, shared_rows(way, v, target), target) for v in vector_counts(way, 1, target)]
        return min(each, default=inf) * way.computed[-1]

    counts = range(2, min(window.axes[-2].outputs, target.vector_registers // 2))
    best = min((replace(window, row_tile=rows) for rows in counts), key=cycles, default=window)
    return best if cycles(best) < cycles(window) * (1 - LEAST_GAIN) else window


def _rows_held(window: PlanarWindow) -> int:
    """Return the rows of a channel's data that the taps of a sum read, separately for each phase of columns a stride apart."""
    *outer, axis = window.axes
    return prod(each.taps for each in outer) * min(axis.stride, axis.span)


def _shares_rows(window: PlanarWindow) -> bool:
    """Return whether rows of a depthwise convolution read the same rows of data."""
    return len(window.axes) > 1 and window.outputs == 1 < window.axes[-2].taps


def _data_rows(window: PlanarWindow, rows: int) -> int:
    """Return the number of rows of data that a tile of so many rows reads."""
    axis = window.axes[-2]
    return len({row * axis.stride + tap * axis.dilation for row in range(rows) for tap in range(axis.taps)})
