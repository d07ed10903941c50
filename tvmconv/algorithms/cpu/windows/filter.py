"""Reads of windows' filters: in place, or from a copy in the order of a tile's sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from ....checks import within_reach
from ...pairs import channel_bits, filter_bits, filter_channels, pair
from ...quads import flip
from ...stage_names import FILTER_PACK, FILTER_SUMS, stage_name
from ...subconvolution import Expr
from ...types import load_filter
from .plan import DirectPlan
from .window import Window


def filter_element(window: Window, weights: te.Tensor) -> Callable[..., Expr]:
    """Return ``element(g, p, k, c, o)``: an element of the window's filter as an operand of products."""
    problem = window.problem
    channels, count = problem.in_channels // problem.groups, window.vnni_factor

    def load(g: Expr, p: Any, k: Any, c: Expr, o: Expr) -> Expr:
        return weights(*window.filter_indices(g, p, k, c, o))

    def element(g: Expr, p: Any, k: Any, c: Expr, o: Expr) -> Expr:
        c = window.summed(c, o)
        if window.vnni_factor == 1:
            return load_filter(load(g, p, k, c, o), problem)
        if weights.dtype == window.element_type:
            indices = window.filter_indices(g, p, k, count * c, o)
            indices[filter_channels(problem)] //= count
            return weights(*indices)

        def bits(which: int) -> Any:
            value = filter_bits(load(g, p, k, count * c + which, o), problem, count)
            return flip(value, window.quads is not None and window.quads.flips_filter)

        return pair(bits, count * c, channels, count, channel_bits(problem, count))

    return element


def staged_filter(window: Window, weights: te.Tensor) -> Callable[..., Expr]:
    """Return the function ``(g, phases, taps, c, o)`` that reads the filter for a product, in place or from its copy."""
    axes, lanes, element = window.axes, window.lanes, filter_element(window, weights)
    together = vectors_together(window)
    if not window.stages_filter:
        return lambda g, p, k, c, o: element(g, p, k, c, window.output(o))

    def packed(g: Expr, block: Expr, *indices: Expr) -> Expr:
        p, k, (c, vector, lane) = indices[: len(axes)], indices[len(axes) : -3], indices[-3:]
        o = (block * together + vector) * lanes + lane
        value = element(g, p, k, c, window.output(o))
        if window.stored == window.padded_outputs:
            return value
        return tirx.if_then_else(o < window.outputs, value, tirx.const(0, window.element_type))

    phases, taps = [axis.phases for axis in axes], [axis.taps for axis in axes]
    blocks = window.padded_outputs // lanes // together
    shape = (window.groups, blocks, *phases, *taps, window.channels, together, lanes)
    pack = te.compute(within_reach(shape, "the copy of the filter"), packed, name=stage_name(FILTER_PACK, window.index))
    return lambda g, p, k, c, o: pack(g, o // lanes // together, *p, *k, c, o // lanes % together, o % lanes)


def sums_of_filter(window: Window, weights: te.Tensor) -> Callable[..., Expr]:
    """Return ``first(g, phases, o)``: minus data's zero point times the sum of an output channel's filter, a stage of its own."""
    problem, axes, quads = window.problem, window.axes, window.quads
    assert quads is not None
    channels, factor = problem.in_channels // problem.groups, tirx.const(-quads.zero_point % 2**32, "uint32")
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(axes)]
    c = te.reduce_axis((0, channels), name="c")

    def total(g: Expr, *indices: Expr) -> Expr:
        p, o = indices[:-1], tirx.min(window.output(indices[-1]), window.outputs - 1)
        weight = weights(*window.filter_indices(g, p, taps, c, o)).astype("int32")
        return te.sum((weight - problem.filter_zero_point).astype("uint32") * factor, axis=[*taps, c])

    shape = (window.groups, *(axis.phases for axis in axes), window.padded_outputs)
    sums = te.compute(shape, total, name=stage_name(FILTER_SUMS, window.index))
    return lambda g, p, o: sums(g, *p, o).astype("int32")


def vectors_together(window: Window) -> int:
    """Return the number of vectors of output channels that are adjacent in the copy of the filter, as a stream of lines for a tile.

    It is a multiple or a divisor of a tile's vectors. Otherwise vectors of a tile would have separate addresses, for which
    LLVM spilled sums.
    """
    vectors = window.padded_outputs // window.lanes
    if window.whole_image or window.by_blocks or window.packs_parts:
        return 1
    plan = window.plans[0] if window.plans else None
    tile = plan.vectors if isinstance(plan, DirectPlan) else 1
    counts = (v for v in range(1, window.most_together + 1) if vectors % v == 0)
    return max(v for v in counts if v % tile == 0 or tile % v == 0)
