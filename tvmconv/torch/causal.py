"""Causal convolutions, which pad both ends and cut what they computed of the last: padded at the first end alone."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .convolution import Convolution


def without_end(node: Any, convolution: Convolution, taps: Sequence[int]) -> Convolution | None:
    """Return what computes a convolution and the slice of its output that a node is, as ``y[:, :, :-2]``; None if nothing does.

    Parameters
    ----------
    node
        Reads the convolution's output alone.
    convolution
        Whose output it reads.
    taps
        The filter's size along each spatial axis.
    """
    if node.target is not operator.getitem or convolution.transposed or convolution.same or convolution.is_linear:
        return None
    cuts = _cuts(node.args[1], len(taps))
    if cuts is None or any(stride != 1 for stride in convolution.strides):
        return None
    ends = tuple(end - cut for end, cut in zip(convolution.pads_end, cuts, strict=True))
    both = zip(convolution.pads_begin, ends, taps, convolution.dilations, strict=True)
    # As large as the data at least, so that there is one for all sizes.
    if any(end < 0 or begin + end < (k - 1) * d for begin, end, k, d in both):
        return None
    return replace(convolution, pads_end=ends)


def _cuts(index: Any, rank: int) -> list[int] | None:
    """Return how much an index leaves out at the end of each spatial axis, None if it does something else."""
    if not isinstance(index, tuple):
        return None
    if index and index[0] is Ellipsis:
        index = (slice(None),) * (rank + 3 - len(index)) + index[1:]
    if len(index) > rank + 2 or not all(isinstance(each, slice) for each in index):
        return None
    index += (slice(None),) * (rank + 2 - len(index))
    if index[:2] != (slice(None), slice(None)) or any(
        each.start is not None or each.step is not None for each in index
    ):
        return None
    stops = [0 if each.stop is None else each.stop for each in index[2:]]
    if not all(isinstance(stop, int) and stop <= 0 for stop in stops) or any(each.stop == 0 for each in index[2:]):
        return None
    return [-stop for stop in stops]
