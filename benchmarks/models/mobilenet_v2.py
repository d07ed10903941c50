"""MobileNetV2: inverted residuals, whose sum no activation follows."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

# Expansion, channels, blocks, stride.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _convolution(inputs: int, outputs: int, taps: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, taps, stride, taps // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True)]


class InvertedResidual(nn.Module):  # type: ignore[misc]
    """A depthwise convolution between two of 1x1."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        first = _convolution(inputs, wide, 1) if expansion > 1 else []
        last = [nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
        self.conv = nn.Sequential(*first, *_convolution(wide, wide, 3, stride, wide), *last)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        return x + self.conv(x) if self.adds else self.conv(x)


def model() -> nn.Module:
    """Return the network."""
    layers, inputs = _convolution(3, 32, 3, 2), 32
    for expansion, channels, blocks, stride in _STAGES:
        for number in range(blocks):
            layers.append(InvertedResidual(inputs, channels, stride if number == 0 else 1, expansion))
            inputs = channels
    layers += _convolution(inputs, 1280, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


def example() -> Any:
    """Return an input."""
    return torch.randn(1, 3, 224, 224)
