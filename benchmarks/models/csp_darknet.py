"""CSPDarknet, the backbone of YOLO detectors (Wang et al., 2020): depth 0.33 and width 0.5, as the small ones have it.

Three feature maps, of 1/8 to 1/32 of the input's size, go on to a detector's neck.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from .layers import conv_norm, scaled

# Channels and blocks of each stage, which halves its input.
_STAGES = ((64, 1), (128, 2), (256, 3), (512, 1))
_STEM = 32

_conv = partial(conv_norm, activation=nn.SiLU)


class Bottleneck(nn.Module):  # type: ignore[misc]
    """Two convolutions with a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = _conv(channels, channels, 1), _conv(channels, channels, 3)

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        return x + self.conv2(self.conv1(x))


class CrossStagePartial(nn.Module):  # type: ignore[misc]
    """Half of the channels through blocks, the other half past them."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        half = channels // 2
        self.through, self.past, self.last = (
            _conv(channels, half, 1),
            _conv(channels, half, 1),
            _conv(2 * half, channels, 1),
        )
        self.blocks = nn.Sequential(*(Bottleneck(half) for _ in range(blocks)))

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        return self.last(torch.cat([self.blocks(self.through(x)), self.past(x)], 1))


class Pyramid(nn.Module):  # type: ignore[misc]
    """Spatial pyramid pooling: maxima over 5x5, 9x9 and 13x13, each from the one before."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce, self.last = _conv(channels, channels // 2, 1), _conv(channels // 2 * 4, channels, 1)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        x = self.reduce(x)
        by5 = self.pool(x)
        by9 = self.pool(by5)
        return self.last(torch.cat([x, by5, by9, self.pool(by9)], 1))


class Backbone(nn.Module):  # type: ignore[misc]
    """The stages, the last three of which are seen."""

    def __init__(self, width: float) -> None:
        super().__init__()
        inputs = scaled(_STEM, width)
        self.stem = nn.Sequential(nn.Conv2d(3, inputs, 6, 2, 2, bias=False), nn.BatchNorm2d(inputs), nn.SiLU())
        stages = []
        for channels, blocks in _STAGES:
            outputs = scaled(channels, width)
            stages.append(nn.Sequential(_conv(inputs, outputs, 3, 2), CrossStagePartial(outputs, blocks)))
            inputs = outputs
        stages[-1].append(Pyramid(inputs))
        self.first, self.second, self.third, self.fourth = stages

    def forward(self, x: Any) -> Any:
        """Return the maps, the largest first."""
        large = self.second(self.first(self.stem(x)))
        middle = self.third(large)
        return large, middle, self.fourth(middle)


def model(width: float = 1.0) -> nn.Module:
    """Return the network."""
    return Backbone(width)


def example(batch: int = 1, size: int = 640) -> Any:
    """Return an input."""
    return torch.randn(batch, 3, size, size)
