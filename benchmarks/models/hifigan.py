"""The generator of HiFi-GAN V1 (Kong et al., 2020), weight norm removed as for inference: from mel bands to samples."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from .layers import scaled

_MELS, _CHANNELS = 80, 512
_RATES, _UP_TAPS = (8, 8, 2, 2), (16, 16, 4, 4)
_TAPS, _DILATIONS = (3, 7, 11), (1, 3, 5)
_SLOPE = 0.1


class ResidualBlock(nn.Module):  # type: ignore[misc]
    """Pairs of convolutions, the first of each dilated, with a residual connection around each pair."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.dilated = nn.ModuleList(
            nn.Conv1d(channels, channels, taps, dilation=d, padding=d * (taps - 1) // 2) for d in _DILATIONS
        )
        self.plain = nn.ModuleList(nn.Conv1d(channels, channels, taps, padding=taps // 2) for _ in _DILATIONS)

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        for dilated, plain in zip(self.dilated, self.plain, strict=True):
            inner = functional.leaky_relu(dilated(functional.leaky_relu(x, _SLOPE)), _SLOPE)
            x = plain(inner) + x
        return x


class Generator(nn.Module):  # type: ignore[misc]
    """Transposed convolutions, and after each the mean of blocks with receptive fields of several sizes."""

    def __init__(self, mels: int, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(mels, channels, 7, padding=3)
        self.up, self.blocks = nn.ModuleList(), nn.ModuleList()
        for rate, taps in zip(_RATES, _UP_TAPS, strict=True):
            self.up.append(nn.ConvTranspose1d(channels, channels // 2, taps, rate, (taps - rate) // 2))
            channels //= 2
            self.blocks.append(nn.ModuleList(ResidualBlock(channels, taps) for taps in _TAPS))
        self.last = nn.Conv1d(channels, 1, 7, padding=3)

    def forward(self, x: Any) -> Any:
        """Return 256 samples for each frame."""
        x = self.first(x)
        for up, blocks in zip(self.up, self.blocks, strict=True):
            x = up(functional.leaky_relu(x, _SLOPE))
            x = sum([block(x) for block in blocks[1:]], blocks[0](x)) / len(blocks)
        return torch.tanh(self.last(functional.leaky_relu(x)))


def model(width: float = 1.0) -> nn.Module:
    """Return the network."""
    return Generator(_MELS, scaled(_CHANNELS, width))


def example(batch: int = 1, size: int = 32) -> Any:
    """Return the bands of `size` frames."""
    return torch.randn(batch, _MELS, size)
