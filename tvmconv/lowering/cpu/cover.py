"""The cycles of a family's blocks that cover outputs, as `native/cover.h` chooses them, and the blocks to have."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
Cycles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# All outputs along an axis, or those of one of three pieces: of those that meet data by all taps, and before and behind them.
_PIECES = range(4)


class Cost(NamedTuple):
    """A block: its outputs along each axis, and estimates of the cycles of a call, of its sums by all taps, and of a copy of its data.

    Sums are by those taps alone that meet data; where they are 0, they are part of the call, by all taps.
    """

    outputs: Shape
    call: float
    sums: float
    copy: float

    @property
    def cycles(self) -> float:
        """Cycles of a call by all taps."""
        return self.call + self.sums


class Reach(NamedTuple):
    """Reach of outputs in data, by axis: strides, taps and their dilations, and pads at both ends."""

    strides: Shape
    taps: Shape
    dilations: Shape
    pads_begin: Shape
    pads_end: Shape


class Covers:
    """The covers of some outputs by blocks: one region; whole blocks of a kind and a region for what each axis has left; or regions that
    are cut along some axes at both ends of what all taps meet data by.

    Parameters
    ----------
    blocks
        At least one.
    outputs
        Outputs along each axis, at least one; of several sizes.
    reach
        None: nobody copies data, or leaves out taps.
    """

    def __init__(self, blocks: Sequence[Cost], outputs: Sequence[Shape], reach: Reach | None = None) -> None:
        self._blocks, self._reach, self._all = blocks, reach, np.array(outputs, np.int64)
        self._sizes = np.array([each.outputs for each in blocks], np.int64)
        ends = self._all // self._sizes[:, None] * self._sizes[:, None]
        rank = self._all.shape[1]
        # Regions: those of pieces; then for each axis and block what is left along the axis, which has all outputs of the axes before,
        # and those of whole blocks of the axes behind.
        names = list(product(_PIECES if reach else (0,), repeat=rank))
        pieces = [self._pieces_along(axis) for axis in range(rank)]
        regions = [
            tuple(np.stack(each, -1) for each in zip(*map(list.__getitem__, pieces, name), strict=True))
            for name in names
        ]
        for axis in range(rank):
            for end in ends:
                begin, to = np.zeros_like(end), end.copy()
                begin[:, axis], to[:, : axis + 1] = end[:, axis], self._all[:, : axis + 1]
                regions.append((begin, to))
        self._regions = self._cycles(*map(np.array, zip(*regions, strict=True)))
        whole = np.diagonal(self._cycles(np.zeros_like(ends), ends)).T
        self._whole = np.where(ends.all(axis=-1), whole, np.inf)
        # Of the axes that are cut, the numbers of the pieces.
        cut = [tuple(at > 0 for at in name) for name in names]
        self._covers = [[number for number, each in enumerate(cut) if each == axes] for axes in dict.fromkeys(cut)]

    def cycles(self, chosen: Sequence[int]) -> Cycles:
        """Return the cycles of each of the outputs by some of the blocks, which are given by number."""
        regions = self._regions[list(chosen)].min(axis=0)
        by_pieces = np.min([regions[each].sum(axis=0) for each in self._covers], axis=0)
        left = regions[sum(map(len, self._covers)) :].reshape(-1, *self._whole.shape)
        by_whole = self._whole + left.sum(axis=0)
        return np.minimum(by_pieces, by_whole[list(chosen)].min(axis=0))

    def _extents(self, axis: int) -> tuple[Reach, Ints, int]:
        """Return what is read, the extents of data along an axis, and the inputs from an output's first to its last."""
        assert self._reach is not None
        reach = self._reach
        span = (reach.taps[axis] - 1) * reach.dilations[axis] + 1
        extents = (self._all[:, axis] - 1) * reach.strides[axis] + span - reach.pads_begin[axis] - reach.pads_end[axis]
        return reach, extents, span

    def _pieces_along(self, axis: int) -> list[tuple[Ints, Ints]]:
        """Return the begin and the end of all outputs along an axis, and of the pieces."""
        all_ = self._all[:, axis]
        zeros = np.zeros_like(all_)
        if self._reach is None:
            return [(zeros, all_)]
        reach, extents, span = self._extents(axis)
        stride, before = reach.strides[axis], reach.pads_begin[axis]
        met = np.minimum(-(-before // stride), all_)
        end = np.clip((extents - span + before) // stride + 1, 0, all_)
        first, second = np.minimum(met, end), np.maximum(met, end)
        return [(zeros, all_), (zeros, first), (first, second), (second, all_)]

    def _cycles(self, begin: Ints, to: Ints) -> Cycles:
        """Return the cycles of regions by each block alone: axes of blocks, of regions, and of outputs."""
        count = np.ones((len(self._blocks), *begin.shape[:-1]), np.int64)
        inside, share = count.copy(), np.ones(begin.shape[:-1])
        by_taps = np.array([each.sums > 0 for each in self._blocks])[:, None, None]
        for axis in range(begin.shape[-1]):
            size = self._sizes[:, axis, None, None]
            along = -(-(to - begin)[..., axis] // size)
            count *= along
            if self._reach is None:
                continue
            reach, extents, span = self._extents(axis)
            stride, taps, dilation = reach.strides[axis], reach.taps[axis], reach.dilations[axis]
            from_ = begin[..., axis] * stride - reach.pads_begin[axis]
            last = (to[..., axis] - 1) * stride - reach.pads_begin[axis]
            first_tap = np.maximum(-(last // dilation), 0)
            end_tap = np.minimum(-((from_ - extents) // dilation), taps)
            met = first_tap < end_tap
            first_tap, end_tap = np.where(met, first_tap, 0), np.where(met, end_tap, taps)
            share *= (end_tap - first_tap) / taps
            # A block by ranges of taps is moved back to the region's end.
            beyond = along * size - (to - begin)[..., axis]
            first_read = from_ + np.where(by_taps, first_tap * dilation - np.where(along == 1, beyond, 0) * stride, 0)
            last_read = last + np.where(by_taps, (end_tap - 1) * dilation, beyond * stride + span - 1)
            before, behind = first_read < 0, last_read >= extents
            inside *= np.maximum(along - before - behind, 0)
        call, sums, copy = (
            np.array([getattr(each, name) for each in self._blocks])[:, None, None] for name in ("call", "sums", "copy")
        )
        copied = (count - inside) * copy if self._reach else 0.0
        found: Cycles = count * (call + share * sums) + copied
        return found


def choose(
    blocks: Sequence[Cost], outputs: Sequence[Shape], most: int, gain: float, reach: Reach | None = None
) -> list[int]:
    """Return which of some blocks cover some outputs best, by number: one after the other the one that brings most.

    The measure is the mean, of all outputs, of the cycles as a share of those by all blocks; there are at most so many, and each beyond
    the first brings as large a part of it.
    """
    covers = Covers(blocks, outputs, reach)
    chosen: list[int] = []
    least = covers.cycles(range(len(blocks)))
    before = np.inf
    while len(chosen) < min(most, len(blocks)):
        means = {
            number: float((covers.cycles([*chosen, number]) / least).mean())
            for number in range(len(blocks))
            if number not in chosen
        }
        number = min(means, key=means.__getitem__)
        if means[number] > before * (1 - gain):
            break
        before = means[number]
        chosen.append(number)
    return chosen
