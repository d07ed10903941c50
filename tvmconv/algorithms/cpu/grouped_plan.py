"""Plan loops whose lanes run across groups, for both estimate and schedule: choices, the default, and the order of tasks."""

from __future__ import annotations

from itertools import product
from math import gcd, prod

from ...dtypes import DTYPE_BYTES
from ...targets.cpus import L1_WAY_BYTES, LINE_BYTES
from ...targets.target import CpuTarget
from ..shapes import divisors, tile_widths
from .model.tasks import rows_first, task_cycles
from .windows.plan import GroupedPlan
from .windows.tile import reads_in_place
from .windows.window import Window

MAX_UNROLLED = 128  # multiply-adds in a loop body: 3x3 taps of 14 vectors; more only grows the code
# Products of a whole row without those with padding: 27 taps of 14 pixels are 196.
MAX_UNROLLED_ROW = 256
# Least steps of taps taken together; fewer would leave more taps to be taken one by one.
LEAST_STEPS = 8
LEAST_BANDS = 4  # of rows, where threads share them
LEAST_CHUNK = 64  # channels: four adjacent cache lines; with fewer, hardware prefetches what other tasks use


def grouped_vectors(window: Window, target: CpuTarget) -> list[int]:
    """Return the numbers of vectors of channels that a tile may have, the best first, preferring chunks that L1 keeps.

    240 channels with 5x5 taps are 3 chunks by single vectors, but one by 3 or 5.
    """
    counts = divisors(window.padded_outputs // window.lanes, 8)
    counts.sort(key=lambda v: grouped_cycles(window, _widths(window, v, target)[0], v, target))
    if _loads_bound(window, target):
        counts.sort(key=lambda v: _tile_bytes(window, v, target) > target.costs.l1)
    if _is_long(window, counts[0], target):
        counts.sort(key=lambda v: (not _whole_row(window, v, target), -v * max(_tiles(window, v, target)), abs(v - 2)))
    return counts[:3]


def _is_long(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Return whether a row has too many taps to unroll in the best tile of `vectors` vectors by the model."""
    return not window.shuffles and not _unrolls(window, _widths(window, vectors, target)[0], vectors)


def _tiles(window: Window, vectors: int, target: CpuTarget) -> list[int]:
    """Return the numbers of pixels that a tile of so many vectors may have, the best first."""
    tiles = _widths(window, vectors, target)
    if not _is_long(window, vectors, target):
        return tiles[:4]
    if _whole_row(window, vectors, target):
        return [window.axes[-1].outputs]
    return sorted(tiles, reverse=True)[:4]


def _whole_row(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Return whether a tile may be a whole row, with all its taps unrolled."""
    outputs = window.axes[-1].outputs
    return outputs in _widths(window, vectors, target) and _unrolls(window, outputs, vectors)


def _unrolls(window: Window, width: int, vectors: int) -> bool:
    """Return whether all taps of a row are unrolled in tiles of `width` pixels by `vectors` vectors."""
    axis = window.axes[-1]
    if axis.taps * width * vectors <= MAX_UNROLLED:
        return True
    whole = width == axis.outputs and axis.phases == 1 and (reads_in_place(window) or window.skips_columns)
    return whole and vectors * sum(len(axis.meets(0, tap)) for tap in range(axis.taps)) <= MAX_UNROLLED_ROW


def grouped_plan(window: Window, vectors: int, target: CpuTarget) -> GroupedPlan:
    """Return the plan of a window with tiles of so many `vectors` of channels."""
    tiles, chunks, rank = _tiles(window, vectors, target), _chunks(window, vectors), len(window.axes)
    height = window.axes[-2].outputs if rank > 1 else 1
    share_rows = rows_first(window, target)
    rows, bands = divisors(height, 64), LEAST_BANDS if share_rows and not window.spread else 1
    likely_rows = [count for count in rows if height // count >= bands] or rows[:1]
    likely = chunks[-1:] if _fewest_channels(window, target) else chunks
    best = min(product(likely, likely_rows), key=lambda cr: task_cycles(window, cr[0], cr[1], tiles[0], target))
    # All taps along the row are unrolled if they fit, else one by one, of which lowering takes some together.
    taps, unrolls = window.axes[-1].taps, _unrolls(window, tiles[0], vectors)
    together = 0 if unrolls or window.shuffles else _taps_together(window, tiles[0], vectors)
    most = 1 if together else max(1, MAX_UNROLLED // (tiles[0] * vectors))
    return GroupedPlan(
        vectors=vectors,
        tiles=(tiles, tiles[0]),
        chunks=(chunks, best[0]),
        rows=(rows, best[1]),
        rows_first=share_rows,
        taps_unrolled=taps if unrolls else divisors(taps, most)[-1],
        taps_together=together,
        channels_first=_channels_first(window, target),
    )


def _taps_together(window: Window, width: int, vectors: int) -> int:
    """Return the number of taps of a row that are taken together: all that fit, but few of the whole, as the rest is taken one by one."""
    return max(1, min(MAX_UNROLLED // (width * vectors), window.axes[-1].taps // LEAST_STEPS))


def _chunks(window: Window, vectors: int) -> list[int]:
    """Return the numbers of chunks that tasks may cut the channels into: 1 if tasks copy data and the last channels are shifted.

    TVM finds no extent of a part of shifted channels.
    """
    if window.across and window.shifted and window.stages_data and not reads_in_place(window):
        return [1]
    return divisors(window.padded_outputs // (window.lanes * vectors), max(1, window.padded_outputs // LEAST_CHUNK))


def _loads_bound(window: Window, target: CpuTarget) -> bool:
    """Return whether a core that multiplies fast waits for loads of data and filter read in place."""
    in_place = reads_in_place(window) and not window.shuffles
    return "chunks_in_l1" in target.costs.pays and (in_place or window.spread)


def _tile_bytes(window: Window, vectors: int, target: CpuTarget) -> int:
    """Return the bytes of data and filter that a tile reads for all channels of the smallest chunk."""
    axis, width = window.axes[-1], _widths(window, vectors, target)[0]
    columns = (width - 1) * axis.stride + axis.span
    taps = prod(each.taps for each in window.axes)
    channels = window.padded_outputs // _chunks(window, vectors)[-1]
    return 4 * channels * (taps + taps // axis.taps * columns)


def _fewest_channels(window: Window, target: CpuTarget) -> bool:
    """Return whether tasks have the fewest channels, so that rows stay in an L1 of 32 KiB from tap to tap.

    They do not if pixels are a multiple of 1 KiB apart, so that few channels share few sets; nor for dilated rows.
    """
    if _loads_bound(window, target):
        return len(window.axes) > 1
    adjacent = all(axis.dilation == 1 for axis in window.axes) and 4 * window.pixel % (L1_WAY_BYTES // 4) != 0
    return "small_chunks" in target.costs.pays and not window.shuffles and adjacent


def _channels_first(window: Window, target: CpuTarget) -> bool:
    """Return whether shuffled sums take channels before taps.

    With channels innermost, LLVM loads data once for all of them. With a stride these are more data than registers hold, and loops
    between the channels prevent that. Where one load starts per cycle, such sums wait for loads, of which data that crosses
    cache lines takes two. For copied data and pairs neither order is faster.
    """
    loads_bound = "shuffled_taps_first" in target.costs.pays and window.problem.dtype == "f32"
    return window.axes[-1].stride > 1 and not loads_bound


def _widths(window: Window, vectors: int, target: CpuTarget) -> list[int]:
    """Return the tile widths whose accumulators fit half of the registers, the best by the model first.

    The other half holds data that the unrolled taps of neighbouring outputs share; with more accumulators LLVM spills.
    """
    fitting = [t for t in tile_widths(window.row, target) if t * vectors <= target.vector_registers // 2]
    return sorted(fitting, key=lambda t: grouped_cycles(window, t, vectors, target))


def grouped_cycles(window: Window, width: int, vectors: int, target: CpuTarget, taps: int = 0) -> float:
    """Return the multiply-adds per output vector and tap of a tile whose lanes have data of their own.

    Long tiles wait for the cache: a core looks a few hundred instructions ahead, which is several short tiles but not two long
    ones. Shuffled data is used by several multiply-adds per tap, so its tiles do not wait. Data of the unrolled taps stays in registers, as
    far as there are enough. By default all taps of an endless row are counted; with `taps`, as in a plan, so many taps of the actual row,
    and loads that L1 does not serve, for which all tiles wait.
    """
    costs, axis, outputs = target.costs.lanes, window.axes[-1], width * vectors
    data = (width - 1) * axis.stride + ((taps or axis.taps) - 1) * axis.dilation + 1
    if taps and (window.skips_columns or reads_in_place(window)):
        data = min(data, axis.inputs)
    wait, reloads = costs.single / vectors, 0.0
    if not window.shuffles:
        wait += outputs * (costs.long_in_place if window.spread or reads_in_place(window) else costs.long)
        problem = window.problem
        image = 4 * prod(problem.data_shape) // max(problem.batch, 1)
        reload = costs.reload if image <= target.l2_share else costs.reload_beyond
        reloads = reload * max(0, outputs + vectors * data - target.vector_registers)
    load = costs.load + costs.crowded * (evicted_share(window, width, target) if taps else 0.0)
    # Integers are converted after they are loaded.
    made = data * (2 if window.problem.is_quantized and window.vnni_factor == 1 else 1)
    loads = vectors * (made / (taps or axis.taps) + 1) * load
    return (max(outputs, costs.chain) + loads + reloads) / outputs + wait


def evicted_share(window: Window, width: int, target: CpuTarget) -> float:
    """Return the share of a tile's loads, of data and a filter in place, that miss L1, divided by the number of sets that pixels share.

    Misses are repeated loads of lines beyond the capacity of these sets: lines of a row, which the next row reads again, or of a tile. With
    fewer sets, loads wait longer for each other.
    """
    if window.shuffles or not reads_in_place(window):
        return 0.0
    *outer, axis = window.axes
    rows, filters = prod(each.taps for each in outer), prod(each.taps for each in window.axes)
    columns = min((width - 1) * axis.stride + axis.span, axis.inputs)
    loads = rows * columns + filters
    first = min(width * axis.stride, columns) * prod(min(each.stride, each.taps) for each in outer)
    between = min(axis.extent, axis.inputs) if any(each.taps > each.stride for each in outer) else columns
    passed = rows * between + filters * (not window.stages_filter)
    sets = L1_WAY_BYTES // max(gcd(DTYPE_BYTES[window.problem.types.data] * window.pixel, L1_WAY_BYTES), LINE_BYTES)
    evicted = max(0.0, 1 - sets * (target.costs.l1 // L1_WAY_BYTES) / passed)
    return (1 - first / loads) * evicted / sets
