"""Estimate the cycles of covering outputs by blocks, as `native/cover.h` chooses covers, and choose a family's blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
Cycles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Pieces of outputs along an axis: all; or those before, with, and after those of which all taps meet data.
_PIECES = range(4)


class Cost(NamedTuple):
    """A block: its outputs along each axis, and estimated cycles of a call, of its sums over all taps, and of a copy of its data.

    If `sums` is not 0, only taps that meet data are summed, and `sums` is scaled; otherwise sums are part of the call, over all taps.
    """

    outputs: Shape
    call: float
    sums: float
    copy: float

    @property
    def cycles(self) -> float:
        """Cycles of a call with all taps."""
        return self.call + self.sums


class Reach(NamedTuple):
    """Reach of outputs in data, by axis: strides, taps and their dilations, and pads at both ends."""

    strides: Shape
    taps: Shape
    dilations: Shape
    pads_begin: Shape
    pads_end: Shape


class Covers:
    """Covers of outputs by blocks: one region; whole blocks of one kind and a region for the remainder of each axis; or regions cut along
    some axes where outputs stop meeting data by all taps.

    Parameters
    ----------
    blocks
        Blocks, at least one.
    outputs
        Outputs along each axis, at least one, of several sizes.
    reach
        Reach of outputs in data; None: no data is copied, and no taps are left out.
    """

    def __init__(self, blocks: Sequence[Cost], outputs: Sequence[Shape], reach: Reach | None = None) -> None:
        self._blocks, self._reach, self._all = blocks, reach, np.array(outputs, np.int64)
        self._sizes = np.array([each.outputs for each in blocks], np.int64)
        ends = self._all // self._sizes[:, None] * self._sizes[:, None]
        rank = self._all.shape[1]
        # Regions: those of pieces; then for each axis and block the remainder along the axis, with all outputs along earlier axes, and
        # those of whole blocks along later ones.
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
        # For each set of cut axes, the numbers of its pieces' regions.
        cut = [tuple(at > 0 for at in name) for name in names]
        self._covers = [[number for number, each in enumerate(cut) if each == axes] for axes in dict.fromkeys(cut)]

    def cycles(self, chosen: Sequence[int]) -> Cycles:
        """Return the cycles of each of the outputs by the blocks whose numbers are `chosen`."""
        regions = self._regions[list(chosen)].min(axis=0)
        by_pieces = np.min([regions[each].sum(axis=0) for each in self._covers], axis=0)
        left = regions[sum(map(len, self._covers)) :].reshape(-1, *self._whole.shape)
        by_whole = self._whole + left.sum(axis=0)
        return np.minimum(by_pieces, by_whole[list(chosen)].min(axis=0))

    def _extents(self, axis: int) -> tuple[Reach, Ints, int]:
        """Return the reach, the extents of data along an axis, and the span of an output's taps."""
        assert self._reach is not None
        reach = self._reach
        span = (reach.taps[axis] - 1) * reach.dilations[axis] + 1
        extents = (self._all[:, axis] - 1) * reach.strides[axis] + span - reach.pads_begin[axis] - reach.pads_end[axis]
        return reach, extents, span

    def _pieces_along(self, axis: int) -> list[tuple[Ints, Ints]]:
        """Return the begins and ends of the pieces along an axis, in the order of `_PIECES`."""
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
        """Return the cycles of regions by each block alone, in an array of blocks by regions by outputs."""
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
            # A block that sums ranges of taps is shifted to end with the region.
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
    """Return the numbers of the blocks that cover outputs best, chosen greedily, at most `most`.

    The measure is the mean over all outputs of the cycles relative to those with all blocks; each block beyond the first must reduce it by
    the fraction `gain`.
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
