"""Transpose planar and channels-last data in registers: between a channel's row and a pixel's channels.

Copying planar data to pixels (TO_PIXELS) reads rows of channels and stores pixels' channels; storing sums to planar output (TO_PLANES) does
the opposite; and interleaving phases (INTERLEAVE) stores sums of several phases to one row. Either reads or writes would be by single
elements, one or two a cycle. Here such a pair of loops is split into square blocks, read and written by vectors: four vectors are
transposed within 128-bit parts by 8 shuffles, then the parts of longer vectors.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from .....algorithms.annotations import (
    INTERLEAVE,
    TO_PIXELS,
    TO_PIXELS_IF_WHOLE,
    TO_PLANES,
    TO_PLANES_IF_WIDE,
    TRANSPOSE,
)
from ....common.rewrites import refuse, rewrite_loops
from ..rounding import rounding
from .interleaving import interleave
from .pixels import to_pixels
from .planes import to_planes

_WAYS = {
    TO_PIXELS: to_pixels,
    TO_PIXELS_IF_WHOLE: to_pixels,
    TO_PLANES: to_planes,
    TO_PLANES_IF_WIDE: to_planes,
    INTERLEAVE: interleave,
}


def transpose(body: Any) -> Any:
    """Return the statement with copies that request TRANSPOSE read and written by vectors."""

    def transposed(loop: Any) -> Any:
        if not isinstance(loop.extent, tirx.IntImm):
            refuse(loop, TRANSPOSE, f"it takes {loop.extent} iterations, of which the number is to be known")
        way = _WAYS.get(loop.annotations[TRANSPOSE])
        if way is None:
            refuse(loop, TRANSPOSE, f"it is none of {', '.join(_WAYS)}")
        return way(loop)

    return rounding(rewrite_loops(body, TRANSPOSE, transposed))
