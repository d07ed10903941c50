"""Convolutions whose output is cut at its ends, as causal ones are: the part cut off is not computed."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from .convolution import Convolution
from .pads import padding_of


def without_ends(
    node: Any, convolution: Convolution, taps: Sequence[int], modules: Mapping[str, nn.Module]
) -> Convolution | None:
    """Return what computes a convolution and what a node leaves of its output, as ``y[:, :, 1:-2]``; None if nothing does.

    Parameters
    ----------
    node
        Reads the convolution's output alone: a slice, or pads that are negative.
    convolution
        Whose output it reads.
    taps
        The filter's size along each spatial axis.
    modules
        Those of the graph, by their names.
    """
    if convolution.by_size or convolution.is_linear:
        return None
    cuts = _cuts(node, len(taps), modules)
    if cuts is None:
        return None
    scales = (1,) * len(taps) if convolution.transposed else tuple(-s for s in convolution.strides)
    begins, ends = (
        tuple(pad + cut * scale for pad, cut, scale in zip(pads, each, scales, strict=True))
        for pads, each in zip((convolution.pads_begin, convolution.pads_end), cuts, strict=True)
    )
    if not convolution.transposed:
        both = zip(begins, ends, taps, convolution.dilations, strict=True)
        # As large as the data at least, so that there is one for all sizes.
        if any(min(begin, end) < 0 or begin + end < (k - 1) * d for begin, end, k, d in both):
            return None
    return replace(convolution, pads_begin=begins, pads_end=ends)


def _cuts(node: Any, rank: int, modules: Mapping[str, nn.Module]) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return how much a node leaves out before and after each spatial axis, None if it does something else."""
    if node.target is operator.getitem:
        return _cuts_of_index(node.args[1], rank)
    padding = padding_of(node, modules)
    pads = None if padding is None or padding.mode != "constant" else padding.of_axes(rank)
    if pads is None or max(*pads[0], *pads[1]) > 0:
        return None
    begin, end = (tuple(-pad for pad in each) for each in pads)
    return begin, end


def _cuts_of_index(index: Any, rank: int) -> tuple[list[int], list[int]] | None:
    """Return what an index leaves out."""
    if not isinstance(index, tuple):
        return None
    if index and index[0] is Ellipsis:
        index = (slice(None),) * (rank + 3 - len(index)) + index[1:]
    if len(index) > rank + 2 or not all(isinstance(each, slice) for each in index):
        return None
    index += (slice(None),) * (rank + 2 - len(index))
    if index[:2] != (slice(None), slice(None)) or any(each.step not in (None, 1) for each in index):
        return None
    starts = [0 if each.start is None else each.start for each in index[2:]]
    stops = [0 if each.stop is None else each.stop for each in index[2:]]
    if not all(type(each) is int for each in (*starts, *stops)) or min(starts) < 0:
        return None
    if max(stops) > 0 or any(each.stop == 0 for each in index[2:]):
        return None
    return starts, [-stop for stop in stops]
