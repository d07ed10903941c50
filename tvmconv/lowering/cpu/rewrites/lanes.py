"""Simplify quotients in vectorized loops that are the same for all lanes.

``(c*288 + b*32 + v*16 + lane) // 64`` is the same for 16 lanes, but TVM does not prove it where the sum's coefficients are not multiples of
64. Vectorized, such an index would cause a load for each lane.
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm_ffi.structural import structural_map

from ...common.rewrites import substitute
from .padding import uses


def divide_whole_vectors(body: Any) -> Any:
    """Return the statement with ``(n*lanes + lane) // d`` and ``% d`` of vectorized loops simplified, for d a multiple of lanes."""
    return structural_map(body, (tirx.For, _divide))


def _divide(loop: Any) -> Any:
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(loop.extent, tirx.IntImm):
        return loop
    lane, count, analyzer = loop.loop_var, int(loop.extent), sym.Analyzer()

    def first(node: Any) -> Any:
        """Return the dividend of lane 0 if all lanes have the same quotient; else None."""
        if not isinstance(node.b, tirx.IntImm) or int(node.b) % count or not uses(node.a, lane):
            return None
        start = analyzer.simplify(substitute(node.a, {lane: 0}))
        whole = analyzer.can_prove_equal(tirx.floormod(start, count), 0)
        return start if whole and analyzer.can_prove_equal(node.a, start + lane) else None

    def quotient(node: Any) -> Any:
        start = first(node)
        return node if start is None else tirx.floordiv(start, node.b)

    def remainder(node: Any) -> Any:
        start = first(node)
        return node if start is None else tirx.floormod(start, node.b) + lane

    divided = structural_map(loop.body, [(tirx.FloorDiv, quotient), (tirx.FloorMod, remainder)])
    return tirx.For(lane, loop.min, loop.extent, loop.kind, divided, annotations=loop.annotations)
