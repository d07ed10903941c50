"""EfficientNet-B0 (Tan and Le, 2019): inverted residuals with squeeze-and-excitation and SiLU."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .layers import SqueezeExcitation, conv_norm, scaled

# Expansion, taps, channels, blocks, stride: the paper's table 1.
_STAGES = (
    (1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1), (6, 5, 192, 4, 2),
    (6, 3, 320, 1, 1),
)  # fmt: skip


class Block(nn.Module):  # type: ignore[misc]
    """MBConv: a depthwise convolution between two of 1x1."""

    def __init__(self, inputs: int, expansion: int, taps: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        first = [conv_norm(inputs, wide, 1, activation=nn.SiLU)] if expansion > 1 else []
        self.conv = nn.Sequential(
            *first,
            conv_norm(wide, wide, taps, stride, groups=wide, activation=nn.SiLU),
            SqueezeExcitation(wide, inputs // 4, nn.SiLU(), nn.Sigmoid()),
            conv_norm(wide, outputs, 1),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        return x + self.conv(x) if self.adds else self.conv(x)


def model(width: float = 1.0) -> nn.Module:
    """Return the network."""
    inputs = scaled(32, width)
    layers: list[nn.Module] = [conv_norm(3, inputs, 3, 2, activation=nn.SiLU)]
    for expansion, taps, channels, blocks, stride in _STAGES:
        for number in range(blocks):
            outputs = scaled(channels, width)
            layers.append(Block(inputs, expansion, taps, outputs, stride if number == 0 else 1))
            inputs = outputs
    last = scaled(1280, width)
    layers.append(conv_norm(inputs, last, 1, activation=nn.SiLU))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000))


def example(batch: int = 1, size: int = 224) -> Any:
    """Return an input."""
    return torch.randn(batch, 3, size, size)
