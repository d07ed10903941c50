"""Convolutions that pad as TensorFlow's "same": by the size of each input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as functional
from torch import nn


def same_pads(
    sizes: Sequence[int], taps: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the pads before and after each axis with which ceil(size / stride) is the output's size, the odd one after."""
    totals = [
        max(((size + s - 1) // s - 1) * s + (k - 1) * d + 1 - size, 0)
        for size, k, s, d in zip(sizes, taps, strides, dilations, strict=True)
    ]
    return tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)


class SameConvolution(nn.modules.conv._ConvNd):  # type: ignore[misc]
    """One whose pads follow from its input's size."""

    def forward(self, input: Any) -> Any:
        """Pad, and compute."""
        begin, end = same_pads(input.shape[2:], self.weight.shape[2:], self.stride, self.dilation)
        pads = [pad for ends in zip(reversed(begin), reversed(end), strict=True) for pad in ends]
        return self._conv_forward(functional.pad(input, pads), self.weight, self.bias)


class SameConv1d(SameConvolution, nn.Conv1d):  # type: ignore[misc]
    """A Conv1d that pads so."""


class SameConv2d(SameConvolution, nn.Conv2d):  # type: ignore[misc]
    """A Conv2d that pads so."""


class SameConv3d(SameConvolution, nn.Conv3d):  # type: ignore[misc]
    """A Conv3d that pads so."""
