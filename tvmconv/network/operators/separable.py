"""Pools and resizes with channels first as calls of a C function (`tvmconv/lowering/native/operators/windows.c`), which reduces windows
axis by axis: rows first, then their columns.

In TVM's loops each output reads all elements of its window, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

FUNCTION = "tvmconv_network_windows"
TYPES = ("float32", "bfloat16")
# Limits of windows.c: columns on a thread's stack, the padding of tables of columns, and rows computed together.
_MOST_COLUMNS, _SLACK, _ROWS = 4096, 64, 8
# The most taps of rows times planes, whose addresses a thread keeps on its stack.
_MOST_TAPS = 1024
# Inputs, outputs, taps, stride, pad and dilation of an axis.
Axis = tuple[int, int, int, int, int, int]
# Enough for many threads.
_TASKS = 64


class WindowKind(IntEnum):
    """Reduction of a window: its greatest element, its sum divided by a number, or its weighted sum."""

    GREATEST = 0
    MEAN = 1
    WEIGHTED = 2


@dataclass(frozen=True)
class Windows:
    """The windows of one axis.

    Attributes
    ----------
    inputs
        Number of input elements.
    places
        For each output, the indices of its taps; -1: none.
    factors
        For each output, the weights of its taps, or the divisor of a mean.
    lies
        Pad, stride and dilation, if these determine the indices.
    """

    inputs: int
    places: npt.NDArray[np.int32]
    factors: npt.NDArray[np.float32]
    lies: tuple[int, int, int] | None = None

    @classmethod
    def of_pool(cls, axis: Axis, end: int | None = None) -> Windows:
        """Return the windows of a pool; means are divided by the number of taps on inputs, and on pads if the pad at the end is given."""
        inputs, outputs, taps, stride, pad, dilation = axis
        places = np.arange(outputs)[:, None] * stride - pad + np.arange(taps) * dilation
        begin, end = (0, inputs) if end is None else (-pad, inputs + end)
        divisors = ((places >= begin) & (places < end)).sum(1)
        inside = (places >= 0) & (places < inputs)
        found = np.where(inside, places, -1).astype(np.int32)
        return cls(inputs, found, divisors.astype(np.float32), (pad, stride, dilation))

    @classmethod
    def whole(cls, extent: int, kind: WindowKind) -> Windows:
        """Return the windows of an unchanged axis."""
        places, ones = np.arange(extent, dtype=np.int32)[:, None], np.ones(extent, np.float32)
        return cls(extent, places, ones[:, None] if kind is WindowKind.WEIGHTED else ones, (0, 1, 1))

    @property
    def is_whole(self) -> bool:
        """Return whether the axis is unchanged."""
        same = self.places.shape == (self.inputs, 1) and bool((self.places[:, 0] == np.arange(self.inputs)).all())
        return same and bool((self.factors == 1).all())

    @property
    def outputs(self) -> int:
        """Number of windows."""
        return len(self.places)

    @property
    def taps(self) -> int:
        """Number of taps of the largest window."""
        return self.places.shape[1]


def call_windows(
    builder: relax.BlockBuilder,
    data: relax.Expr,
    shape: Sequence[int],
    axes: Sequence[Windows],
    kind: WindowKind,
    name: str,
) -> relax.Expr | None:
    """Return data of `shape` reduced by windows along at most three last axes, channels first; None if the function does not support it."""
    images, (planes, lines, columns) = _together(shape, axes, kind)
    block = _block(columns, kind)
    # TVM's loops vectorize unchanged rows, too.
    if columns.is_whole or block is None or planes.taps * lines.taps > _MOST_TAPS:
        return None
    blocks = images * planes.outputs * -(-columns.outputs // block)
    rows = -(-lines.outputs * blocks // _TASKS)
    rows = min(-(-rows // _ROWS) * _ROWS, lines.outputs) if blocks < _TASKS else lines.outputs
    sizes = [each for axis in (planes, lines, columns) for each in (axis.inputs, axis.outputs, axis.taps)]
    lies = (0, 0, 0) if columns.lies is None else columns.lies
    numbers = [int(kind), TYPES.index(str(data.ty.dtype)), images, *sizes, *lies, rows, block]
    ends = [_pad(columns.places), _pad(columns.factors)]
    places = np.concatenate([planes.places.T.ravel(), lines.places.T.ravel(), ends[0]])
    factors = np.concatenate([planes.factors.T.ravel(), lines.factors.T.ravel(), ends[1]])
    tables = [relax.const(each, str(each.dtype)) for each in (places, factors)]
    return builder.call_te(_call, *tables, data, list(shape), numbers, primfunc_name_hint=name)


def _together(shape: Sequence[int], axes: Sequence[Windows], kind: WindowKind) -> tuple[int, list[Windows]]:
    """Return the number of images and the windows of three axes, with all images and outer axes as lines where these are unchanged."""
    images, one = prod(shape[: len(shape) - len(axes)]), Windows.whole(1, kind)
    *outer, columns = [one] * (3 - len(axes)) + list(axes)
    if all(each.is_whole for each in outer):  # rows of several images are computed together
        return 1, [one, Windows.whole(images * prod(each.outputs for each in outer), kind), columns]
    return images, [*outer, columns]


def _block(columns: Windows, kind: WindowKind) -> int | None:
    """Return the number of columns computed at a time; None if one reads too many inputs, or indices are out of order."""
    if columns.lies is not None:
        _, stride, dilation = columns.lies
        left = _MOST_COLUMNS - (columns.taps - 1) * dilation - 1
        return None if left < 0 else min(left // stride + 1, columns.outputs)
    places = columns.places
    if (places < 0).any() or (np.diff(places, axis=0) < 0).any():
        return None
    block = min(columns.outputs, _MOST_COLUMNS)
    while block:
        begins = np.arange(0, columns.outputs, block)
        ends = np.minimum(begins + block, columns.outputs) - 1
        if (places[ends].max(1) - places[begins].min(1)).max() < _MOST_COLUMNS:
            return block
        block //= 2
    return None


def _pad(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a table of columns with the last one repeated, for whole vectors."""
    rows = table.T.reshape(-1, len(table))
    padded: npt.NDArray[Any] = np.concatenate([rows, np.repeat(rows[:, -1:], _SLACK, 1)], 1).ravel()
    return padded


def _call(
    places: te.Tensor, factors: te.Tensor, data: te.Tensor, shape: Sequence[int], numbers: Sequence[int]
) -> te.Tensor:
    def body(read: Any, written: Any) -> Any:
        arrays = [each.data for each in (*read, *written)]
        return tirx.Evaluate(
            tirx.call_extern("void", FUNCTION, *arrays, *(tirx.const(each, "int64") for each in numbers))
        )

    return te.extern([shape], [places, factors, data], body, dtype=str(data.dtype), name="windows")
