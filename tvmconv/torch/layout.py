"""`Layout`: where tensors have their channels, which lie last in memory where kernels read and write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Layout:
    """The axis of a tensor's channels.

    Parameters
    ----------
    axis
        1, as of a convolution's data (N, C, spatial...), or -1, as of a Linear's (..., C).
    """

    axis: int

    def channels_last(self, tensor: Any) -> Any:
        """Return a view of a tensor with its channels last."""
        return tensor if self.axis == -1 else tensor.permute(0, *range(2, tensor.dim()), 1)

    def from_channels_last(self, tensor: Any) -> Any:
        """Return a view, with its channels at their axis, of a tensor that has them last."""
        return tensor if self.axis == -1 else tensor.permute(0, -1, *range(1, tensor.dim() - 1))

    def shape_last(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return the shape of :meth:`channels_last` of a tensor of this one."""
        return tuple(shape) if self.axis == -1 else (shape[0], *shape[2:], shape[1])

    def strides(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return the strides of a tensor of this shape whose channels lie last in memory."""
        strides, step = [], 1
        for extent in reversed(self.shape_last(shape)):
            strides.append(step)
            step = step * extent
        strides.reverse()
        return tuple(strides) if self.axis == -1 else (strides[0], strides[-1], *strides[1:-1])

    def is_ready(self, tensor: Any) -> bool:
        """Whether a tensor lies as kernels read it."""
        return tensor.numel() > 0 and self.channels_last(tensor).is_contiguous()

    def laid_out(self, tensor: Any) -> Any:
        """Return a tensor as kernels read it; a copy if it is not so."""
        return self.from_channels_last(self.channels_last(tensor).contiguous())


CHANNELS_SECOND, CHANNELS_LAST = Layout(1), Layout(-1)
