"""The cycles of a family's blocks that cover outputs, as `native/family.c` chooses them, and the blocks to have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]
# Outputs of a block along each axis, and its cycles.
Costs = Sequence[tuple[Shape, float]]


class Covers:
    """The covers of some outputs by blocks: one region, or whole blocks of a kind and a region for what each axis has left.

    Parameters
    ----------
    blocks
        Blocks and their cycles, at least one.
    outputs
        Outputs along each axis, at least one; of several sizes.
    """

    def __init__(self, blocks: Costs, outputs: Sequence[Shape]) -> None:
        sizes = np.array([size for size, _ in blocks], np.int64)
        cycles = np.array([each for _, each in blocks])
        all_ = np.array(outputs, np.int64)
        ends = all_ // sizes[:, None] * sizes[:, None]
        whole = ends.all(axis=-1)
        # Regions: all outputs; then for each block and axis what is left along it, which has all outputs of the axes before, and those of
        # whole blocks of the axes behind.
        left = []
        for axis in range(all_.shape[1]):
            region = ends.copy()
            region[..., :axis] = all_[:, :axis]
            region[..., axis] = all_[:, axis] - ends[..., axis]
            left.append(region)
        regions = np.concatenate([all_[None], *left])
        counts = np.stack([np.prod(-(-regions // size), axis=-1) for size in sizes])
        self._regions = counts * cycles[:, None, None]
        self._whole = np.where(whole, cycles[:, None] * np.prod(ends // sizes[:, None], axis=-1), np.inf)

    def cycles(self, chosen: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return the cycles of each of the outputs by some of the blocks, which are given by number."""
        regions = self._regions[list(chosen)].min(axis=0)
        found, left = regions[0], regions[1:].reshape(-1, *self._whole.shape)
        by_whole = self._whole + left.sum(axis=0)
        return np.minimum(found, by_whole[list(chosen)].min(axis=0))


def choose(blocks: Costs, outputs: Sequence[Shape], most: int, gain: float) -> list[int]:
    """Return which of some blocks cover some outputs best, by number: one after the other the one that brings most.

    The measure is the mean, of all outputs, of the cycles as a share of those by all blocks; there are at most so many, and each beyond
    the first brings as large a part of it.
    """
    covers = Covers(blocks, outputs)
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
