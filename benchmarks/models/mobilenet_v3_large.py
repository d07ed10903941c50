"""MobileNetV3-Large (Howard et al., 2019): inverted residuals with squeeze-and-excitation and hardswish."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .layers import SqueezeExcitation, conv_norm, scaled

# Taps, channels within, channels out, squeeze-and-excitation, activation, stride: the paper's table 1.
_BLOCKS = (
    (3, 16, 16, False, nn.ReLU, 1), (3, 64, 24, False, nn.ReLU, 2), (3, 72, 24, False, nn.ReLU, 1),
    (5, 72, 40, True, nn.ReLU, 2), (5, 120, 40, True, nn.ReLU, 1), (5, 120, 40, True, nn.ReLU, 1),
    (3, 240, 80, False, nn.Hardswish, 2), (3, 200, 80, False, nn.Hardswish, 1), (3, 184, 80, False, nn.Hardswish, 1),
    (3, 184, 80, False, nn.Hardswish, 1), (3, 480, 112, True, nn.Hardswish, 1), (3, 672, 112, True, nn.Hardswish, 1),
    (5, 672, 160, True, nn.Hardswish, 2), (5, 960, 160, True, nn.Hardswish, 1), (5, 960, 160, True, nn.Hardswish, 1),
)  # fmt: skip


class Block(nn.Module):  # type: ignore[misc]
    """A depthwise convolution between two of 1x1."""

    def __init__(
        self, inputs: int, taps: int, wide: int, outputs: int, squeezes: bool, activation: Any, stride: int
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(inputs, wide, 1, activation=activation)] if wide != inputs else []
        layers.append(conv_norm(wide, wide, taps, stride, groups=wide, activation=activation))
        if squeezes:
            layers.append(SqueezeExcitation(wide, scaled(wide, 0.25), nn.ReLU(), nn.Hardsigmoid()))
        self.conv = nn.Sequential(*layers, conv_norm(wide, outputs, 1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        return x + self.conv(x) if self.adds else self.conv(x)


def model(width: float = 1.0) -> nn.Module:
    """Return the network."""
    inputs = scaled(16, width)
    layers: list[nn.Module] = [conv_norm(3, inputs, 3, 2, activation=nn.Hardswish)]
    for taps, within, out, squeezes, activation, stride in _BLOCKS:
        outputs = scaled(out, width)
        layers.append(Block(inputs, taps, scaled(within, width), outputs, squeezes, activation, stride))
        inputs = outputs
    wide, last = scaled(960, width), scaled(1280, width)
    layers += [conv_norm(inputs, wide, 1, activation=nn.Hardswish), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Conv2d(wide, last, 1), nn.Hardswish(), nn.Conv2d(last, 1000, 1), nn.Flatten())


def example(batch: int = 1, size: int = 224) -> Any:
    """Return an input."""
    return torch.randn(batch, 3, size, size)
