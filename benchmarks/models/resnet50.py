"""ResNet-50 (He et al., 2016), with the stride of each stage in its 3x3 convolution."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .layers import conv_norm, scaled

# Channels, blocks, stride.
_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
_EXPANSION = 4


class Bottleneck(nn.Module):  # type: ignore[misc]
    """A bottleneck of three convolutions with a residual connection."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = channels * _EXPANSION
        self.conv1 = conv_norm(inputs, channels, 1, activation=nn.ReLU)
        self.conv2 = conv_norm(channels, channels, 3, stride, activation=nn.ReLU)
        self.conv3 = conv_norm(channels, outputs, 1)
        self.relu = nn.ReLU(inplace=True)
        same = stride == 1 and inputs == outputs
        self.downsample = nn.Identity() if same else conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        out = self.conv3(self.conv2(self.conv1(x)))
        out += self.downsample(x)
        return self.relu(out)


def model(width: float = 1.0) -> nn.Module:
    """Return the network."""
    inputs = scaled(64, width)
    layers = [*conv_norm(3, inputs, 7, 2, activation=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    for channels, blocks, stride in _STAGES:
        for number in range(blocks):
            layers.append(Bottleneck(inputs, scaled(channels, width), stride if number == 0 else 1))
            inputs = scaled(channels, width) * _EXPANSION
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def example(batch: int = 1, size: int = 224) -> Any:
    """Return an input."""
    return torch.randn(batch, 3, size, size)
