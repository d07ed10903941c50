"""Parts of a plain filter, which tasks take one after the other, in the order of memory: of what size."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod

from ....dtypes import DTYPE_BYTES
from ....targets.cpus import L1_WAY_BYTES, L1_WAYS
from ....targets.target import CpuTarget
from ...annotations import PART
from ...shapes import IN_FLIGHT, accumulators, divisors, part_counts
from ..model.cost import imbalance
from ..model.counts import rows_kept
from ..model.tasks import TASKS
from .plan import WholeRows
from .window import Window

# Whole rows of a filter. A task's sums, written by it and read by the last, are lines beside as many as its rows have.
LEAST_ROWS_OF_SHARE = 32
MOST_SHARES = 16
# Vectors of sums of a tile, which wait in L1 between parts: as many again are loaded and added.
MOST_SUMS = 16
# Tiles that make pairs of bf16 of two rows, each again: two loads that widen, a shift and an or, beside a tile's 4 products.
MOST_TILES_OF_PAIRS = 3


def whole_rows(window: Window, target: CpuTarget) -> WholeRows | None:
    """Return how tasks read whole rows of a filter in place, where pixels are no more than a tile's; None: they read pieces of all rows.

    Pieces shorter than a page, a row apart, are what the CPU's own prefetching follows badly, and of an array that begins
    within a line, as NumPy's do, each piece is one line more.
    """
    blocks = window.padded_outputs // window.lanes
    piece = DTYPE_BYTES[window.problem.types.filter] * window.problem.out_channels // TASKS
    pixels = window.problem.batch * prod(axis.outputs for axis in window.axes[:-1]) * window.row
    one = window.groups == 1 and pixels <= accumulators(target) and all(axis.phases == 1 for axis in window.axes)
    # Rows a multiple of a way of L1 apart share a set of it.
    rows = divisors(window.channels, L1_WAYS // window.vnni_factor)[-1]
    of_row = DTYPE_BYTES[window.problem.types.filter] * window.vnni_factor / 4
    vectors = divisors(blocks, max(1, min(MOST_SUMS, accumulators(target)) // window.row))[-1]
    # Beside rows of the filter, L1 keeps the sums; or from L2 come no more lines of them than of the filter.
    kept = pixels <= rows * of_row or 4 * pixels * window.padded_outputs <= target.l1_share
    if not (one and kept and window.reads_rows) or piece >= L1_WAY_BYTES or window.problem.is_quantized:
        return None
    if window.vnni_factor > 1 and not (window.whole_elements and pixels <= MOST_TILES_OF_PAIRS * window.row):
        return None
    # Of one vector, a tile would read a line of each row.
    if rows * window.vnni_factor < PART or vectors == 1 or vectors * window.row < IN_FLIGHT:
        return None
    parts = prod(axis.taps for axis in window.axes) * window.channels // rows
    counts = [
        count
        for count in part_counts(parts, MOST_SHARES, TASKS)
        if LEAST_ROWS_OF_SHARE * count <= parts * rows * of_row
    ]
    shares = min(counts, key=imbalance, default=1)
    return WholeRows(shares, rows, vectors) if shares >= TASKS // 2 else None


def taps_together(window: Window) -> bool:
    """Return whether all taps of a channel lie together in the filter, so that a part has them all, in all phases."""
    return window.problem.filter_format == "OIX"


def taps_of_part(window: Window) -> int:
    """Return how many taps of a channel a part has."""
    return prod(axis.taps * axis.phases for axis in window.axes) if taps_together(window) else 1


def has_parts(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Return whether a part, for tiles of `vectors` vectors, has a loop over channels, and squares to transpose.

    Of 226 channels, twice a prime, parts have two.
    """
    return channels_of_part(window, vectors, divisors(window.channels, 4), 1, target) * taps_of_part(window) >= 2 * PART


def channels_of_part(window: Window, vectors: int, unrolls: Sequence[int], chunks: int, target: CpuTarget) -> int:
    """Return how many channels a part has: L1 keeps it of a tile's vectors beside their data; any of `unrolls` divides it.

    Of rows of all output channels, of which a task has one of `chunks` parts, L2 keeps those that are multiplied and those that are
    prefetched meanwhile.
    """
    taps = taps_of_part(window)
    fits = target.l1_share * 3 // 4 // (4 * vectors * window.lanes * taps)
    if window.reads_rows:
        run = DTYPE_BYTES[window.problem.types.filter] * window.vnni_factor * window.padded_outputs // chunks
        fits = min(fits, rows_kept(window, run, target))
    counts = [count for count in divisors(window.channels, window.channels) if count % lcm(*unrolls) == 0]
    return max((count for count in counts if count <= fits), default=counts[0])
