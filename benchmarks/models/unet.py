"""U-Net (Ronneberger et al., 2015) of half the width, padded, with BatchNorm; transposed convolutions enlarge."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .layers import EncoderDecoder, conv_norm, scaled

_CHANNELS = (32, 64, 128, 256, 512)
_CLASSES = 2


def _twice(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        conv_norm(inputs, outputs, 3, activation=nn.ReLU), conv_norm(outputs, outputs, 3, activation=nn.ReLU)
    )


class UNet(EncoderDecoder):
    """The stages of both paths."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.down = nn.ModuleList(map(_twice, (1, *channels), channels))
        self.pool = nn.MaxPool2d(2)
        above, below = channels[-2::-1], channels[:0:-1]
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in zip(below, above, strict=True))
        self.up = nn.ModuleList(_twice(2 * b, b) for b in above)
        self.last = nn.Conv2d(channels[0], _CLASSES, 1)


def model(width: float = 1.0) -> nn.Module:
    """Return the network."""
    return UNet(tuple(scaled(channels, width) for channels in _CHANNELS))


def example(batch: int = 1, size: int = 224) -> Any:
    """Return an input."""
    return torch.randn(batch, 1, size, size)
