"""Sizes of the parts of a plain filter that tasks take one after the other, in the order of memory."""

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

# Least rows of the filter for a task, whose sums (written, and read by the last task) are about as many lines as so many rows.
LEAST_ROWS_OF_SHARE = 32
MOST_SHARES = 16
# Most vectors of sums of a tile, which are stored in L1 between parts, loaded and added to.
MOST_SUMS = 16
# Most tiles that each combine two rows into pairs of bf16: two widening loads, a shift and an or, beside a tile's 4 products.
MOST_TILES_OF_PAIRS = 3


def whole_rows(window: Window, target: CpuTarget) -> WholeRows | None:
    """Return the tasks that read whole rows of a filter in place, if a tile has all pixels; None: tasks read pieces of all rows.

    Hardware prefetching follows pieces badly that are shorter than a page and a row apart, and in arrays that are not aligned to lines, as
    NumPy's, each piece takes another line.
    """
    blocks = window.padded_outputs // window.lanes
    piece = DTYPE_BYTES[window.problem.types.filter] * window.problem.out_channels // TASKS
    pixels = window.problem.batch * prod(axis.outputs for axis in window.axes[:-1]) * window.row
    one = window.groups == 1 and pixels <= accumulators(target) and all(axis.phases == 1 for axis in window.axes)
    # Rows a multiple of a way of L1 apart share a set of it.
    rows = divisors(window.channels, L1_WAYS // window.vnni_factor)[-1]
    of_row = DTYPE_BYTES[window.problem.types.filter] * window.vnni_factor / 4
    vectors = divisors(blocks, max(1, min(MOST_SUMS, accumulators(target)) // window.row))[-1]
    # L1 keeps the sums beside rows of the filter, or no more lines of sums than of the filter come from L2.
    kept = pixels <= rows * of_row or 4 * pixels * window.padded_outputs <= target.l1_share
    if not (one and kept and window.reads_rows) or piece >= L1_WAY_BYTES or window.problem.is_quantized:
        return None
    if window.vnni_factor > 1 and not (window.whole_elements and pixels <= MOST_TILES_OF_PAIRS * window.row):
        return None
    # Tiles of one vector would read one line of each row.
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
    """Return whether all taps of a channel are contiguous in the filter, so that a part has those of all phases."""
    return window.problem.filter_format == "OIX"


def taps_of_part(window: Window) -> int:
    """Return the number of a channel's taps in a part."""
    return prod(axis.taps * axis.phases for axis in window.axes) if taps_together(window) else 1


def has_parts(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Return whether parts, for tiles of `vectors` vectors, have a loop over channels, and squares to transpose.

    Parts of 226 channels, twice a prime, have only two.
    """
    return channels_of_part(window, vectors, divisors(window.channels, 4), 1, target) * taps_of_part(window) >= 2 * PART


def channels_of_part(window: Window, vectors: int, unrolls: Sequence[int], chunks: int, target: CpuTarget) -> int:
    """Return the number of channels of a part: L1 keeps the part of a tile's vectors beside their data, and all `unrolls` divide it.

    If rows have all output channels, of which a task takes one of `chunks` parts, L2 must keep the rows that are multiplied and those
    that are prefetched.
    """
    taps = taps_of_part(window)
    fits = target.l1_share * 3 // 4 // (4 * vectors * window.lanes * taps)
    if window.reads_rows:
        run = DTYPE_BYTES[window.problem.types.filter] * window.vnni_factor * window.padded_outputs // chunks
        fits = min(fits, rows_kept(window, run, target))
    counts = [count for count in divisors(window.channels, window.channels) if count % lcm(*unrolls) == 0]
    return max((count for count in counts if count <= fits), default=counts[0])
