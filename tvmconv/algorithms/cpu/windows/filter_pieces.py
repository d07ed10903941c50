"""Filters in place that take long to read: they lie on many pages, or a tile's part of them in pieces."""

from __future__ import annotations

from math import prod

from ....targets.cpus import L1_WAY_BYTES, L1_WAYS
from ....targets.target import CpuTarget
from ...shapes import divisors
from .tile import best_tile
from .window import FEW_PIXELS, Window

# Rows of a filter so far apart are on a page each, or two, and lie in two sets of L1, which keep so many lines.
FAR_APART_BYTES, FEW_ROWS = L1_WAY_BYTES // 2, 2 * L1_WAYS
# Fewer pixels use a copy in the call too little.
LEAST_PACKED_PIXELS = 64


def is_large(window: Window, target: CpuTarget) -> bool:
    """Return whether a filter lies on too many pages for a tile's part of it, or in pieces that caches read slowly."""
    size = 4 * prod(window.problem.filter_shape)
    small = size <= target.costs.pieces or window.pixels < LEAST_PACKED_PIXELS
    return size > target.costs.pages or (not small and _in_pieces(window, target))


def _in_pieces(window: Window, target: CpuTarget) -> bool:
    """Return whether a tile's part of a filter is halves of cache lines, or lines too far apart to be fetched ahead.

    Not where tasks that copy share work badly: vectors of channels that divide into few odd parts, and pixels into none. 480 to
    72 channels at 14x14, in three tasks, took two threads 95 us instead of 84.
    """
    _, vectors = best_tile(window, target)
    parts = divisors(window.padded_outputs // window.lanes // vectors, 16)
    if window.pixels < 2 * FEW_PIXELS and not any(part % 2 == 0 or part > 8 for part in parts):
        return False
    far_apart = 4 * window.problem.out_channels >= FAR_APART_BYTES and window.products > FEW_ROWS
    return far_apart or vectors % 2 == 1
