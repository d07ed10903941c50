"""Transpose planar and channels-last data in registers: between a channel's row and a pixel's channels.

Copying planar data to pixels (TO_PIXELS) reads a row of each channel and stores channels together; storing sums to planar output
(TO_PLANES) does the opposite; and of a transposed convolution's filter, what lies together is summed, and lanes lie apart. One of
reading and writing is then by single elements, at one or two a cycle. Here such a pair of loops is cut into square blocks, which are
read and written by vectors: within 128 bits four vectors are transposed in 8 shuffles, then the 128-bit parts of longer ones.
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
    """Return the statement with the copies that ask for TRANSPOSE by vectors on both sides."""

    def transposed(loop: Any) -> Any:
        if not isinstance(loop.extent, tirx.IntImm):
            refuse(loop, TRANSPOSE, f"it takes {loop.extent} iterations, of which the number is to be known")
        way = _WAYS.get(loop.annotations[TRANSPOSE])
        if way is None:
            refuse(loop, TRANSPOSE, f"it is none of {', '.join(_WAYS)}")
        return way(loop)

    return rounding(rewrite_loops(body, TRANSPOSE, transposed))
