"""MobileNetV2 (Sandler et al., 2018): inverted residuals, whose sum no activation follows."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .layers import conv_norm, scaled

# Expansion, channels, blocks, stride.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class InvertedResidual(nn.Module):  # type: ignore[misc]
    """A depthwise convolution between two of 1x1."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        first = [conv_norm(inputs, wide, 1, activation=nn.ReLU6)] if expansion > 1 else []
        depthwise = conv_norm(wide, wide, 3, stride, groups=wide, activation=nn.ReLU6)
        self.conv = nn.Sequential(*first, depthwise, conv_norm(wide, outputs, 1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        return x + self.conv(x) if self.adds else self.conv(x)


def model(width: float = 1.0) -> nn.Module:
    """Return the network."""
    inputs = scaled(32, width)
    layers: list[nn.Module] = [conv_norm(3, inputs, 3, 2, activation=nn.ReLU6)]
    for expansion, channels, blocks, stride in _STAGES:
        for number in range(blocks):
            outputs = scaled(channels, width)
            layers.append(InvertedResidual(inputs, outputs, stride if number == 0 else 1, expansion))
            inputs = outputs
    last = scaled(1280, width)
    layers.append(conv_norm(inputs, last, 1, activation=nn.ReLU6))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000))


def example(batch: int = 1, size: int = 224) -> Any:
    """Return an input."""
    return torch.randn(batch, 3, size, size)
