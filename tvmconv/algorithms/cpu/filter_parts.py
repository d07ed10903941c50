"""Parts of a plain filter, which tasks take one after the other, in the order of memory: of what size."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm, prod

from ...problem import DTYPE_BYTES
from ...targets.target import CpuTarget
from ..annotations import PART
from ..shapes import divisors
from .counts import rows_kept
from .window import Window


def taps_together(window: Window) -> bool:
    """Whether all taps of a channel lie together in the filter, so that a part has them all, those of all phases."""
    return window.problem.filter_format == "OIX"


def taps_of_part(window: Window) -> int:
    """Return how many taps of a channel a part has."""
    return prod(axis.taps * axis.phases for axis in window.axes) if taps_together(window) else 1


def has_parts(window: Window, vectors: int, target: CpuTarget) -> bool:
    """Whether a part, for tiles of so many vectors, has a loop over channels, and squares that its copy transposes.

    Of 226 channels, twice a prime, parts have two.
    """
    return channels_of_part(window, vectors, divisors(window.channels, 4), 1, target) * taps_of_part(window) >= 2 * PART


def channels_of_part(window: Window, vectors: int, unrolls: Sequence[int], chunks: int, target: CpuTarget) -> int:
    """Return how many channels a part has: L1 keeps it of a tile's vectors beside their data; any of `unrolls` divides it.

    Of rows of all output channels, of which a task has one of `chunks` parts, L2 keeps those that are multiplied and those that are
    prefetched meanwhile. Two cores of a Zen 4, microseconds, where L1 alone decided and so: 1024 to 1024, 3x3 taps, stride 2, at 4x4
    1361 and 996; 4096 to 4096, one pixel, 1865 and 1685; `col2im`, 1024 to 512, 5x5 taps, 16 pixels, 3327 and 2509.
    """
    taps = taps_of_part(window)
    fits = target.l1_share * 3 // 4 // (4 * vectors * window.lanes * taps)
    if window.reads_rows:
        run = DTYPE_BYTES[window.problem.dtype] * window.vnni_factor * window.padded_outputs // chunks
        fits = min(fits, rows_kept(window, run, target))
    counts = [count for count in divisors(window.channels, window.channels) if count % lcm(*unrolls) == 0]
    return max((count for count in counts if count <= fits), default=counts[0])
