"""Entry points of a kernel's library."""

from __future__ import annotations

from enum import Flag, auto

# The function of a library that is called where it has no others for prepacked filters.
SYMBOL = "tvmconv_kernel"


class EntryPoints(Flag):
    """Functions of a kernel's library.

    ``PLAIN`` takes the filter as it lies. ``PACKED`` takes it prepacked, and has a function that packs; where a kernel
    reads the filter in place, it is the same as ``PLAIN``. What ships has ``BOTH``, each from the definition that is best
    for it; tuning measures ``PACKED`` alone.
    """

    PLAIN = auto()
    PACKED = auto()
    BOTH = PLAIN | PACKED
