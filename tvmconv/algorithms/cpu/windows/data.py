"""Reads of windows' data: in place or from a padded copy, widened or as pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from ....checks import within_reach
from ...pairs import channel_bits, data_bits, pair, spread
from ...quads import flip
from ...stage_names import DATA_PAD, stage_name
from ...subconvolution import Axis, Expr
from ...types import load_data, zero_outside
from .window import Window


def data_element(
    window: Window, data: te.Tensor, pairs: Callable[..., Any] = spread
) -> Callable[[Expr, list[Expr], Expr], Any]:
    """Return ``element(n, x, source)``: element `source` (a channel, pair or quad) of data at `x` as an operand of products.

    `pairs` converts neighbouring integers to an element.
    """
    problem = window.problem

    def element(n: Expr, x: list[Expr], source: Expr) -> Expr:
        def load(c: Expr) -> Expr:
            at, c = window.in_data(x, c)
            value = data(n, *at, c) if problem.data_format == "NXC" else data(n, c, *at)
            if problem.is_quantized:  # padding is the zero point
                paired = pairs if window.data_in_pairs else data_bits
                many = window.vnni_factor > 1
                value = paired(value, problem, window.vnni_factor) if many else load_data(value, problem)
            if window.quads is not None:
                value = flip(value, window.quads.flips_data)
                if bounds := window.data_bounds(at):
                    return tirx.if_then_else(tirx.all(*bounds), value, window.quads.padding_byte)
            return zero_outside(window.data_bounds(at), value, str(value.ty.dtype))

        if window.vnni_factor == 1:
            return load(source) if problem.is_quantized else load_data(load(source), problem)
        if window.data_in_pairs:
            return load(source)
        # Pair c of group g consists of its channels 2c and 2c + 1, which may not exist.
        g, c = source // window.channels, source % window.channels * window.vnni_factor
        per_group = problem.in_channels // problem.groups
        return pair(
            lambda which: load(g * per_group + c + which),
            c,
            per_group,
            window.vnni_factor,
            channel_bits(problem, window.vnni_factor),
        )

    return element


def staged_data(window: Window, data: te.Tensor) -> Callable[..., Expr]:
    """Return the function ``(n, g, phases, outputs, taps, c, o)`` that reads data for a product, in place or from its copy."""
    problem, axes = window.problem, window.axes
    by_groups = copies_groups(window)
    at = data_reader(window, data, by_groups=by_groups)

    def channel(g: Expr, c: Expr, o: Expr) -> Expr:
        if not window.across:
            return g * window.channels + c
        return window.output(o) // (problem.out_channels // problem.groups) * window.channels + window.summed(c, o)

    def read(n: Expr, g: Expr, p: Any, y: Any, k: Any, c: Expr, o: Expr) -> Expr:
        spatial = window.coordinates(p, y, k)
        if by_groups:
            value = at(n, *spatial, g, c)
        else:
            value = at(n, *spatial, c, o) if window.expands else at(n, *spatial, channel(g, c, o))
        if not (window.skips_rows or window.skips_columns):
            return value
        # Lowering skips rows of padding, and columns that whole tiles read (tvmconv/lowering/cpu/rewrites/padding.py).
        *rows, columns = map(Axis.inside, axes, spatial, *_copy_bounds(window))
        bounds = [bound for row in rows for bound in row] + (columns if window.skips_columns else [])
        return zero_outside(bounds, value, window.element_type)

    return read


def copies_groups(window: Window) -> bool:
    """Return whether a copy of data has a separate part for each group, as planes do: a task reads one group."""
    return window.groups > 1 and window.stages_data and window.problem.data_format == "NCX"


def _copy_bounds(window: Window) -> tuple[list[int], list[int]]:
    """Return the lowest data coordinates in the copy of data, and their number along each axis."""
    return [axis.lowest for axis in window.axes], [*(axis.extent for axis in window.axes[:-1]), window.row_extent]


def data_reader(
    window: Window, data: te.Tensor, pairs: Callable[..., Any] = spread, by_groups: bool = False
) -> Callable[..., Expr]:
    """Return ``at(n, *x, channel)``: data at coordinates x, from its copy if the window stages it.

    A copy that `expands` is indexed by a channel of a group and an output channel; one `by_groups` by a group and its channel.
    `pairs` is that of :func:`data_element`.
    """
    problem, axes, element = window.problem, window.axes, data_element(window, data, pairs)
    if not window.stages_data:

        def in_place(n: Expr, *at: Expr) -> Expr:
            x, c = window.in_data(list(at[:-1]), at[-1])
            return data(n, *x, c) if problem.data_format == "NXC" else data(n, c, *x)

        return in_place
    lowest, extents = _copy_bounds(window)
    gaps = [axis.gap for axis in axes]

    def padded(n: Expr, *indices: Expr) -> Expr:
        g, indices = (indices[0], indices[1:]) if by_groups else (0, indices)
        spatial, rest = indices[: len(axes)], indices[len(axes) :]
        x = [index * gap + low for index, gap, low in zip(spatial, gaps, lowest, strict=True)]
        source = g * window.channels + rest[0]
        if window.expands:
            source = window.output(rest[1]) // (problem.out_channels // problem.groups) * window.channels + rest[0]
        bounds = [bound for each in map(Axis.inside, axes, x, lowest, extents) for bound in each]
        if window.expands and window.stored < window.padded_outputs:
            bounds.append(rest[1] < window.outputs)
        value = element(n, x, source)
        if window.quads is not None and bounds:
            return tirx.if_then_else(tirx.all(*bounds), value, window.quads.padding)
        return zero_outside(bounds, value, window.element_type)

    images = (problem.batch, window.groups) if by_groups else (problem.batch,)
    held = [-(-extent // gap) for extent, gap in zip(extents, gaps, strict=True)]
    last = (
        (window.channels, window.padded_outputs)
        if window.expands
        else (window.channels if by_groups else window.pixel,)
    )
    shape = within_reach((*images, *held, *last), "the copy of data")
    pad = te.compute(shape, padded, name=stage_name(DATA_PAD, window.index))

    def at(n: Expr, *indices: Expr) -> Expr:
        spatial = [(x - low) // gap for x, low, gap in zip(indices, lowest, gaps, strict=False)]
        rest = indices[len(axes) :]
        return pad(n, rest[0], *spatial, *rest[1:]) if by_groups else pad(n, *spatial, *rest)

    return at
