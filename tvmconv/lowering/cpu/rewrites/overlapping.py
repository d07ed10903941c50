"""Copy channels by vectors of which the last overlaps the one before: 18 by two of 16, not nine of 2.

TVM splits a loop into equal parts, with a condition for each lane where the extent is not divisible. Elements in the overlap are copied
twice, which is harmless.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ....algorithms.annotations import OVERLAP
from ...common.rewrites import refuse, rewrite_loops, substitute


def overlap_vectors(body: Any) -> Any:
    """Return the statement with loops that request OVERLAP by vectors of the requested number of lanes."""
    return rewrite_loops(body, OVERLAP, _by_vectors)


def _by_vectors(loop: Any) -> Any:
    lanes = int(loop.annotations[OVERLAP])
    if not isinstance(loop.extent, tirx.IntImm) or int(loop.extent) < lanes:
        refuse(loop, OVERLAP, f"it takes {loop.extent} iterations, of which there are to be {lanes} or more")
    count, vector, lane = int(loop.extent), tirx.Var("vector", "int32"), tirx.Var("lane", "int32")
    at = tirx.min(vector * lanes, count - lanes) + lane
    of_lanes = tirx.For(lane, 0, lanes, tirx.ForKind.VECTORIZED, substitute(loop.body, {loop.loop_var: at}))
    return tirx.For(vector, 0, -(-count // lanes), tirx.ForKind.SERIAL, of_lanes)
