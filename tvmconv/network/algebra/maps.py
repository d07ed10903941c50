"""`LinearMap`: a convolution by constants, as a filter and offsets of its taps; maps can be added and composed.

Output ``o`` of a map is the sum over its taps of ``W[tap] x[o * stride + offset]``, where ``offset = tap * dilation - begin``, and
``x`` is zero outside. So the sum of maps with one stride has the union of their offsets, and at each offset the sum of their filters.
Arithmetic is in float64; a filter is rounded once, when it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd, prod

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Most multiplications to compose two filters: more take seconds.
_MOST_PRODUCTS = 2 * 10**10
# Most elements of a joined filter, 1 GiB in float64: the union of distant offsets, such as of dilations 1 and 36, can have far more than its maps.
_MOST_ELEMENTS = 1 << 27


@dataclass(frozen=True)
class LinearMap:
    """A convolution without its source.

    Attributes
    ----------
    filter
        Outputs, inputs of a group, and one axis of taps for each spatial axis.
    bias
        One number for each output channel; None: zeros.
    strides, dilations, begins, ends
        One number for each spatial axis; the last two are pads.
    groups
        Number of groups of channels.
    passes
        Whether it is a slice or a pool, computed by a pass over the data and not by a kernel.
    """

    filter: Array
    bias: Array | None
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    groups: int = 1
    passes: bool = False

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        return int(self.filter.shape[0])

    @property
    def inputs(self) -> int:
        """Number of input channels."""
        return int(self.filter.shape[1]) * self.groups

    @property
    def taps(self) -> tuple[int, ...]:
        """Number of taps along each axis."""
        return tuple(self.filter.shape[2:])

    @property
    def is_pointwise(self) -> bool:
        """Return whether it has one tap, and no pads."""
        return not any((*self.begins, *self.ends)) and set(self.taps) <= {1}

    @property
    def is_slice(self) -> bool:
        """Return whether it only leaves out pixels; its pads crop the data, or extend it for the last stride."""
        return self.passes and set(self.taps) <= {1}

    @property
    def is_finite(self) -> bool:
        """Return whether its numbers are finite: joining multiplies them by zeros, and infinities would become NaN."""
        return bool(np.isfinite(self.filter).all() and (self.bias is None or np.isfinite(self.bias).all()))

    @property
    def is_diagonal(self) -> bool:
        """Return whether each output is one input times a number, plus a number."""
        return self.is_pointwise and set(self.strides) <= {1} and self.is_depthwise

    @property
    def is_depthwise(self) -> bool:
        """Return whether inputs and outputs correspond one to one."""
        return self.groups == self.outputs == self.inputs

    @property
    def products(self) -> int:
        """Number of elements of its filter: multiplications for each output pixel."""
        return int(self.filter.size)

    def scaled(self, factor: Array, shift: Array | None = None) -> LinearMap:
        """Return the map with each output channel multiplied by a number, and another one added."""
        bias = None if self.bias is None else self.bias * factor
        if shift is not None:
            bias = shift if bias is None else bias + shift
        return replace(self, filter=self.filter * factor.reshape(-1, *[1] * (self.filter.ndim - 1)), bias=bias)


def identity(channels: int, rank: int) -> LinearMap:
    """Return the identity map."""
    ones = (1,) * rank
    return LinearMap(np.ones((channels, 1, *ones)), None, ones, ones, (0,) * rank, (0,) * rank, channels)


def add(maps: Sequence[LinearMap]) -> LinearMap | None:
    """Return the sum of maps as one map; None: their strides or channels differ, or it is too large."""
    first = maps[0]
    if len(maps) == 1:
        return replace(first, passes=False)
    if any((each.strides, each.inputs, each.outputs) != (first.strides, first.inputs, first.outputs) for each in maps):
        return None
    groups = reduce(gcd, (each.groups for each in maps))
    rank = len(first.strides)
    offsets = [[_offsets(each, axis) for each in maps] for axis in range(rank)]
    lows = [min(each[0] for each in along) for along in offsets]
    steps = [
        reduce(gcd, (at - low for each in along for at in each), 0) or 1
        for along, low in zip(offsets, lows, strict=True)
    ]
    taps = [
        (max(each[-1] for each in along) - low) // step + 1
        for along, low, step in zip(offsets, lows, steps, strict=True)
    ]
    shape = (first.outputs, first.inputs // groups, *taps)
    if prod(shape) > _MOST_ELEMENTS:
        return None
    filter_ = np.zeros(shape)
    for number, each in enumerate(maps):
        places = [
            [(at - low) // step for at in along[number]] for along, low, step in zip(offsets, lows, steps, strict=True)
        ]
        filter_[np.ix_(range(first.outputs), range(first.inputs // groups), *places)] += _in_groups(each, groups)
    # The last window ends where that of the farthest-reaching map does.
    ends = [maps[int(np.argmax([each[-1] for each in along]))].ends[axis] for axis, along in enumerate(offsets)]
    biases = [each.bias for each in maps if each.bias is not None]
    bias = None if not biases else np.sum(biases, axis=0)
    return LinearMap(filter_, bias, first.strides, tuple(steps), tuple(-low for low in lows), tuple(ends), groups)


def compose(outer: LinearMap, inner: LinearMap) -> LinearMap | None:
    """Return the composition of two maps as one map; None: both have several taps, or borders would differ.

    An outer map with pads reads zeros beyond the inner one's outputs, where the composition would have the inner one's bias. None, too,
    for an inner map that is not finite, and filters that take too long to compose.
    """
    if not inner.is_finite:
        return None
    if outer.is_diagonal:
        return inner.scaled(outer.filter.reshape(-1), outer.bias)
    if outer.products * inner.products // inner.outputs > _MOST_PRODUCTS:
        return None
    groups = gcd(outer.groups, inner.groups)
    steps = inner.strides
    if outer.is_pointwise or (outer.is_slice and set(steps) <= {1}):
        taps, dilations = inner.taps, inner.dilations
        begins, ends = (_move(*each, steps) for each in ((outer.begins, inner.begins), (outer.ends, inner.ends)))
    elif (inner.is_slice or (inner.is_pointwise and set(steps) <= {1})) and (
        inner.bias is None or not any((*outer.begins, *outer.ends))
    ):
        taps, dilations = outer.taps, tuple(each * step for each, step in zip(outer.dilations, steps, strict=True))
        begins, ends = (_move(*each, steps) for each in ((outer.begins, inner.begins), (outer.ends, inner.ends)))
    else:
        return None
    filter_ = _product(outer, inner, groups).reshape(outer.outputs, -1, *taps)
    bias = outer.bias
    if inner.bias is not None:
        through = of_constants(outer, inner.bias)
        bias = through if bias is None else bias + through
    strides = tuple(one * other for one, other in zip(outer.strides, inner.strides, strict=True))
    return LinearMap(filter_, bias, strides, dilations, begins, ends, groups, outer.is_slice and inner.is_slice)


def _product(outer: LinearMap, inner: LinearMap, groups: int) -> Array:
    """Return the composed filter, outputs by inputs of a group by taps, where one map has a single tap; `groups` divides both maps' groups."""
    # All channels of a depthwise map at once: hundreds of matrix products, one for each channel, take milliseconds.
    if outer.is_depthwise:
        return outer.filter.reshape(outer.outputs, 1, -1) * inner.filter.reshape(*inner.filter.shape[:2], -1)
    if inner.is_depthwise:
        split = outer.filter.reshape(groups, -1, inner.outputs // groups, prod(outer.taps))
        return split * inner.filter.reshape(groups, 1, inner.outputs // groups, -1)
    parts = [
        _product_of_group(one, other, outer.groups // groups, inner.groups // groups)
        for one, other in zip(*(np.split(_in_groups(each, groups), groups) for each in (outer, inner)), strict=True)
    ]
    return np.concatenate(parts)


def _product_of_group(outer: Array, inner: Array, outer_groups: int, inner_groups: int) -> Array:
    """Return the composition of two filters as one group's, outputs by inputs by taps, without multiplying their zero blocks."""
    outer, inner = (each.reshape(*each.shape[:2], -1) for each in (outer, inner))
    count, whole = max(outer_groups, inner_groups), slice(None)
    product = np.zeros((outer.shape[0], inner.shape[1], outer.shape[2] * inner.shape[2]))
    for part in range(count):
        middle = _part(inner.shape[0], count, part)
        rows = _part(outer.shape[0], count, part) if outer_groups == count else whole
        columns = _part(inner.shape[1], count, part) if inner_groups == count else whole
        made = np.tensordot(outer[rows, middle], inner[middle, columns], (1, 0)).swapaxes(1, 2)
        product[rows, columns] = made.reshape(*made.shape[:2], -1)
    return product


def _part(size: int, count: int, number: int) -> slice:
    return slice(size // count * number, size // count * (number + 1))


def describe_gain(branches: int, saved: float) -> str:
    """Return a description of a merge of `branches`, with the ratio of multiplications `saved`."""
    what = f"{branches} branches" if branches > 1 else "successive maps"
    times = (
        f"{saved:.2g} times fewer" if saved >= 1.05 else f"{1 / saved:.2g} times as many" if saved < 0.95 else "as many"
    )
    return f"{what}, one kernel; {times} multiplications"


def _move(outer: Sequence[int], inner: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """Return pads of a composition: the outer map's, in steps of the inner map's stride, plus the inner one's."""
    return tuple(one * step + other for one, other, step in zip(outer, inner, steps, strict=True))


def of_constants(map_: LinearMap, numbers: Array) -> Array:
    """Return a map's outputs, without its bias, for data that is constant within each channel."""
    sums = map_.filter.reshape(map_.groups, -1, map_.inputs // map_.groups, map_.filter[0, 0].size).sum(-1)
    return np.einsum("goi,gi->go", sums, numbers.reshape(map_.groups, -1)).reshape(-1)


def _offsets(map_: LinearMap, axis: int) -> list[int]:
    return [tap * map_.dilations[axis] - map_.begins[axis] for tap in range(map_.taps[axis])]


def _in_groups(map_: LinearMap, groups: int) -> Array:
    """Return the map's filter written with fewer groups, a divisor of the map's."""
    if groups == map_.groups:
        return map_.filter
    outputs, inputs = map_.outputs // map_.groups, map_.inputs // map_.groups
    filter_ = np.zeros((map_.outputs, map_.inputs // groups, *map_.taps))
    for group in range(map_.groups):
        start = group % (map_.groups // groups) * inputs
        rows = slice(group * outputs, (group + 1) * outputs)
        filter_[rows, start : start + inputs] = map_.filter[rows]
    return filter_
