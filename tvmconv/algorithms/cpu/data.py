"""How windows read data: an element of a pixel as the arithmetic takes it, widened or by pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm import te, tirx

from ..pairs import pair
from ..types import widen

if TYPE_CHECKING:
    from ..subconvolution import Expr
    from .window import Window


def data_element(window: Window, data: te.Tensor) -> Callable[[Expr, list[Expr], Expr], Any]:
    """Return ``element(n, x, source)``: channel, or pair of them, `source` of data as the arithmetic takes it."""
    problem = window.problem

    def element(n: Expr, x: list[Expr], source: Expr) -> Expr:
        def load(c: Expr) -> Expr:
            at, c = window.in_data(x, c)
            value = data(n, *at, c) if problem.data_format == "NXC" else data(n, c, *at)
            bounds = window.data_bounds(at)
            return tirx.if_then_else(tirx.all(*bounds), value, tirx.const(0, data.dtype)) if bounds else value

        if window.vnni_factor == 1:
            return widen(load(source), problem.dtype)
        if window.data_in_pairs:
            return load(source)
        # Pair c of group g are its channels 2c and 2c + 1, the last possibly alone.
        g, c = source // window.channels, source % window.channels * 2
        per_group = problem.in_channels // problem.groups
        return pair(lambda which: load(g * per_group + c + which), c, per_group)

    return element
