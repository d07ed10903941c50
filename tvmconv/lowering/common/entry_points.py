"""Entry points of a kernel's library."""

from __future__ import annotations

from enum import Flag, auto

# The function that takes plain filters; the only one of a library that packs none.
SYMBOL = "tvmconv_kernel"


class EntryPoints(Flag):
    """Functions of a kernel's library.

    ``PLAIN`` takes the filter as it is. ``PACKED`` takes it prepacked, and comes with a function that packs it; where a kernel
    reads the filter in place, it is the same as ``PLAIN``. What ships has ``BOTH``, each from the definition that is best
    for it; tuning measures ``PACKED`` alone.
    """

    PLAIN = auto()
    PACKED = auto()
    BOTH = PLAIN | PACKED
