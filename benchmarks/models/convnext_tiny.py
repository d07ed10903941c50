"""ConvNeXt-T (Liu et al., 2022): depthwise 7x7 convolutions, LayerNorm, and two convolutions of 1x1 around GELU."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from .layers import scaled

_DIMS, _DEPTHS = (96, 192, 384, 768), (3, 3, 9, 3)


class LayerNorm2d(nn.LayerNorm):  # type: ignore[misc]
    """LayerNorm of each pixel's channels."""

    def forward(self, x: Any) -> Any:
        """Compute the layer."""
        x = functional.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class Block(nn.Module):  # type: ignore[misc]
    """An inverted bottleneck with a scale for each channel and a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = LayerNorm2d(channels, eps=1e-6)
        self.expand, self.act, self.project = (
            nn.Conv2d(channels, 4 * channels, 1),
            nn.GELU(),
            nn.Conv2d(4 * channels, channels, 1),
        )
        # Training begins at 1e-6, where a block does nothing.
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        return x + self.scale * self.project(self.act(self.expand(self.norm(self.depthwise(x)))))


def model(width: float = 1.0) -> nn.Module:
    """Return the network."""
    dims = [scaled(channels, width) for channels in _DIMS]
    layers: list[nn.Module] = [nn.Conv2d(3, dims[0], 4, 4), LayerNorm2d(dims[0], eps=1e-6)]
    for number, (channels, depth) in enumerate(zip(dims, _DEPTHS, strict=True)):
        if number:
            before = dims[number - 1]
            layers += [LayerNorm2d(before, eps=1e-6), nn.Conv2d(before, channels, 2, 2)]
        layers += [Block(channels) for _ in range(depth)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(dims[-1], eps=1e-6), nn.Linear(dims[-1], 1000)]
    return nn.Sequential(*layers, *head)


def example(batch: int = 1, size: int = 224) -> Any:
    """Return an input."""
    return torch.randn(batch, 3, size, size)
