"""A small 3-D U-Net (Cicek et al., 2016): half the width, three levels."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .layers import EncoderDecoder, scaled

# What the two convolutions of each level give, on the way down.
_LEVELS = ((16, 32), (32, 64), (64, 128))
_CLASSES = 3


def _conv(inputs: int, outputs: int) -> nn.Module:
    conv = nn.Conv3d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm3d(outputs), nn.ReLU(inplace=True))


class UNet3d(EncoderDecoder):
    """The stages of both paths."""

    def __init__(self, levels: list[tuple[int, int]]) -> None:
        super().__init__()
        inputs = [1, *(last for _, last in levels[:-1])]
        self.down = nn.ModuleList(
            nn.Sequential(_conv(given, first), _conv(first, last))
            for given, (first, last) in zip(inputs, levels, strict=True)
        )
        self.pool = nn.MaxPool3d(2)
        above, below = [last for _, last in levels[-2::-1]], [last for _, last in levels[:0:-1]]
        self.enlarge = nn.ModuleList(nn.ConvTranspose3d(channels, channels, 2, 2) for channels in below)
        self.up = nn.ModuleList(nn.Sequential(_conv(a + b, b), _conv(b, b)) for a, b in zip(below, above, strict=True))
        self.last = nn.Conv3d(levels[0][1], _CLASSES, 1)


def model(width: float = 1.0) -> nn.Module:
    """Return the network."""
    return UNet3d([(scaled(first, width), scaled(last, width)) for first, last in _LEVELS])


def example(batch: int = 1, size: int = 32) -> Any:
    """Return cubes."""
    return torch.randn(batch, 1, size, size, size)
