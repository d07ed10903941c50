"""What several networks are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def scaled(channels: float, width: float) -> int:
    """Return a number of channels times `width`: a multiple of 8, not less than 8, nor 10 % less than asked for.

    Source: the divisors of MobileNetV2's authors, which EfficientNet and MobileNetV3 share.
    """
    wanted = channels * width
    least = max(8, int(wanted + 4) // 8 * 8)
    return least + 8 if least < 0.9 * wanted else least


def conv_norm(
    inputs: int,
    outputs: int,
    taps: int,
    stride: int = 1,
    *,
    groups: int = 1,
    activation: Callable[[], nn.Module] | None = None,
) -> nn.Sequential:
    """Return a convolution that pads to equal size, a BatchNorm, and an activation."""
    layers = [nn.Conv2d(inputs, outputs, taps, stride, taps // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([activation()] if activation else []))


class SqueezeExcitation(nn.Module):  # type: ignore[misc]
    """Scales each channel by what two layers make of all channels' means (Hu et al., 2018)."""

    def __init__(self, channels: int, squeezed: int, activation: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce, self.expand = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.activation, self.gate = activation, gate

    def forward(self, x: Any) -> Any:
        """Compute the layer."""
        return x * self.gate(self.expand(self.activation(self.reduce(self.pool(x)))))


class EncoderDecoder(nn.Module):  # type: ignore[misc]
    """A path down and a path up, which concatenates its maps with those of the path down: a U-Net of any rank.

    They set `down` and `up`, the stages of both paths; `pool` and `enlarge`, which stand between stages; and `last`.
    """

    def forward(self, x: Any) -> Any:
        """Return the scores of each class at each point."""
        skipped = []
        for stage in self.down[:-1]:
            skipped.append(stage(x))
            x = self.pool(skipped[-1])
        x = self.down[-1](x)
        for enlarge, stage in zip(self.enlarge, self.up, strict=True):
            x = stage(torch.cat([skipped.pop(), enlarge(x)], 1))
        return self.last(x)
