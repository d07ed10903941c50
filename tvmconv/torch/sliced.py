"""`SlicedPlan`: a segment whose middle part is computed a few images at a time, what comes before and after all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..runtime.placing import Lifetime, place
from .arena import BLOCKS
from .plan import Plan
from .slices import Cut

# With more threads, the tasks of a kernel for few images become too few and too short; where that begins was not measured.
MOST_THREADS = 4


class SlicedPlan:
    """A segment for inputs of one kind, by three plans: one of a slice of the images, called for each, and those around it.

    Parameters
    ----------
    whole
        The plan of all images, which computes it with many threads.
    cut
        What is computed by slices.
    before, slices, after
        The plans of the segment's parts, None where there is no part.
    """

    def __init__(self, whole: Plan, cut: Cut, before: Plan | None, slices: Plan, after: Plan | None) -> None:
        self._whole, self._cut = whole, cut
        self._before, self._slices, self._after = before, slices, after
        outputs = whole.segment.outputs
        written = [node for plan in (before, slices) if plan is not None for node in plan.segment.outputs]
        self._new = [(node, whole.layers[node].call) for node in written if node in outputs]
        kept = [node for node in written if node not in outputs]
        offsets, self._size = place([Lifetime(whole.met[node].bytes, 0, 0) for node in kept])
        self._kept = [(node, offset, whole.met[node]) for node, offset in zip(kept, offsets, strict=True)]
        self._batch = whole.met[slices.segment.outputs[0]].shape[0]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Compute the segment; return its outputs.

        Raises
        ------
        RuntimeError
            If there is no memory, or a tensor has none.
        """
        if torch.get_num_threads() > MOST_THREADS:
            return self._whole(inputs)
        block = BLOCKS.take(self._size)
        try:
            values = dict(zip(self._whole.segment.inputs, inputs, strict=True))
            for node, offset, met in self._kept:
                values[node] = block.tensor(offset, met.shape, met.strides, met.dtype)
            for node, call in self._new:
                values[node] = call.empty()
            if self._before is not None:
                segment = self._before.segment
                self._before(
                    [values[node] for node in segment.inputs], {each: values[each] for each in segment.outputs}
                )
            self._compute_slices(values)
            if self._after is not None:
                segment = self._after.segment
                made = self._after([values[node] for node in segment.inputs])
                values.update(zip(segment.outputs, made, strict=True))
            return [values[node] for node in self._whole.segment.outputs]
        finally:
            BLOCKS.give(block)

    def _compute_slices(self, values: dict[Any, Any]) -> None:
        """Compute all slices, whose outputs are parts of those in `values`."""
        segment = self._slices.segment
        for first in range(0, self._batch, self._cut.images):
            self._slices(
                [slice_of(self._cut, node, values[node], first) for node in segment.inputs],
                {node: slice_of(self._cut, node, values[node], first) for node in segment.outputs},
            )


def slice_of(cut: Cut, node: Any, value: Any, first: int = 0) -> Any:
    """Return the images from `first` on of a node's value; all of what is the same for all images."""
    return value.narrow(0, first, cut.images) if node in cut.by_image else value
