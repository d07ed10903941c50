"""Filters that take long to read in place: on many pages, or with a tile's part in pieces."""

from __future__ import annotations

from math import prod

from ....targets.cpus import L1_WAY_BYTES, L1_WAYS
from ....targets.target import CpuTarget
from ...shapes import divisors
from .tile import best_tile
from .window import FEW_PIXELS, Window

# Rows of a filter so far apart are one or two to a page, and share two sets of L1, which hold so many lines.
FAR_APART_BYTES, FEW_ROWS = L1_WAY_BYTES // 2, 2 * L1_WAYS
# Least pixels for which a copy in the call pays.
LEAST_PACKED_PIXELS = 64


def is_large(window: Window, target: CpuTarget) -> bool:
    """Return whether a filter is on too many pages, or a tile's part of it in pieces that caches read slowly."""
    size = 4 * prod(window.problem.filter_shape)
    small = size <= target.costs.pieces or window.pixels < LEAST_PACKED_PIXELS
    return size > target.costs.pages or (not small and _in_pieces(window, target))


def _in_pieces(window: Window, target: CpuTarget) -> bool:
    """Return whether a tile's part of a filter is halves of cache lines, or lines too far apart to be prefetched.

    It is False if tasks that copy would share work badly, because vectors of channels divide only into few odd parts: 480 to
    72 channels at 14x14, in three tasks, took two threads 95 us instead of 84.
    """
    _, vectors = best_tile(window, target)
    parts = divisors(window.padded_outputs // window.lanes // vectors, 16)
    if window.pixels < 2 * FEW_PIXELS and not any(part % 2 == 0 or part > 8 for part in parts):
        return False
    far_apart = 4 * window.problem.out_channels >= FAR_APART_BYTES and window.products > FEW_ROWS
    return far_apart or vectors % 2 == 1
