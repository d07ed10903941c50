"""Tensor expressions of a window.

The same five stages serve all layouts and types:

    data_pad     data widened to f32, zero-padded, channel-last   (absent if data is read in place)
    filter_pack  filter widened to f32, [group, block, taps, c, vector, lane]     (absent if it is read in place)
    acc          the sum, f32
    tile         acc copied out of registers                      (only where the store is not by whole vectors)
    out          bias added, rounded once to the output type
"""

from __future__ import annotations

from tvm import te

from ...epilogue import Epilogue
from ...first_values import begin_with
from ...pairs import multiply_of, round_pair
from ...stage_names import ACC, OUT, TILE, stage_name
from ...subconvolution import Expr
from .data import staged_data
from .filter import staged_filter, sums_of_filter
from .window import Window


def express(window: Window, data: te.Tensor, weights: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return the window's `out`: axes (n, g, phases..., outputs..., o)."""
    rank, number = len(window.axes), window.index
    read_data = staged_data(window, data)
    read_filter = staged_filter(window, weights)
    taps = [te.reduce_axis((0, axis.taps), name=f"k{i}") for i, axis in enumerate(window.axes)]
    c = te.reduce_axis((0, window.channels), name="c")
    multiply = multiply_of(window.problem, window.vnni_factor, window.quads.types if window.quads else None)
    first = sums_of_filter(window, weights) if window.sums_filter else None
    phases = tuple(axis.phases for axis in window.axes)
    spatial = (*(axis.outputs for axis in window.axes[:-1]), window.row)

    def total(*indices: Expr) -> Expr:
        n, g, o = indices[0], indices[1], indices[-1]
        p, y = indices[2 : 2 + rank], [*indices[2 + rank : -2], window.column(indices[-2])]
        product = multiply(read_data(n, g, p, y, taps, c, o), read_filter(g, p, taps, c, o))
        return te.sum(product if first is None else begin_with(first(g, p, o), product), axis=[*taps, c])

    shape = (window.problem.batch, window.groups, *phases, *spatial, window.padded_outputs)
    acc = te.compute(shape, total, name=stage_name(ACC, number))
    return finish(window, acc, epilogue)


def finish(window: Window, acc: te.Tensor, epilogue: Epilogue) -> te.Tensor:
    """Return `out` of complete sums: axes (n, g, phases..., outputs..., o)."""
    number = window.index
    if not window.stores_vectors:
        acc = te.compute(acc.shape, lambda *indices: acc(*indices), name=stage_name(TILE, number))

    def rounded(*indices: Expr) -> Expr:
        channel = window.stored_channel(indices[1], indices[-1])
        rounding = round_pair if window.rounds else None
        return epilogue(acc(*indices), channel, window.store_index(list(indices))[0], rounding)

    outputs = tuple(axis.outputs for axis in window.axes[:-1])
    phases = tuple(axis.phases for axis in window.axes)
    shape = (window.problem.batch, window.groups, *phases, *outputs, window.row - window.excess, window.stored)
    return te.compute(shape, rounded, name=stage_name(OUT, number))


def rounded_sums(window: Window, sums: te.Tensor, channels: int, epilogue: Epilogue) -> te.Tensor:
    """Return `out` of complete sums whose last axis has the output channels of a group, `channels` of them."""

    def rounded(*indices: Expr) -> Expr:
        return epilogue(sums(*indices), indices[1] * channels + indices[-1], window.store_index(list(indices))[0])

    return te.compute(sums.shape, rounded, name=stage_name(OUT, window.index))
