"""Inception v3 (Szegedy et al., 2016), without its auxiliary classifier: branches of factorized convolutions."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from .layers import scaled

_AVERAGE = partial(nn.AvgPool2d, 3, 1, 1)


def _conv(inputs: int, outputs: int, taps: Any, stride: int = 1, padding: Any = 0) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, taps, stride, padding, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, eps=1e-3), nn.ReLU(inplace=True))


class Branches(nn.Module):  # type: ignore[misc]
    """Concatenates what its branches compute of one input."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        return torch.cat([branch(x) for branch in self.branches], 1)


class Builder:
    """The blocks of a network whose channels are all times `width`."""

    def __init__(self, width: float) -> None:
        self.c = partial(scaled, width=width)

    def chain(self, inputs: int, *layers: tuple[Any, ...]) -> nn.Sequential:
        """Return convolutions one after the other, each of (outputs, taps, stride, padding)."""
        made = []
        for outputs, *rest in layers:
            made.append(_conv(inputs, self.c(outputs), *rest))
            inputs = self.c(outputs)
        return nn.Sequential(*made)

    def same(self, inputs: int, pooled: int) -> nn.Module:
        """Return figure 5's block, at 35x35."""
        return Branches(
            self.chain(inputs, (64, 1)),
            self.chain(inputs, (48, 1), (64, 5, 1, 2)),
            self.chain(inputs, (64, 1), (96, 3, 1, 1), (96, 3, 1, 1)),
            nn.Sequential(_AVERAGE(), self.chain(inputs, (pooled, 1))),
        )

    def halve(self, inputs: int) -> nn.Module:
        """Return the block from 35x35 to 17x17."""
        return Branches(
            self.chain(inputs, (384, 3, 2)),
            self.chain(inputs, (64, 1), (96, 3, 1, 1), (96, 3, 2)),
            nn.MaxPool2d(3, 2),
        )

    def rows_and_columns(self, inputs: int, within: int) -> nn.Module:
        """Return figure 6's block, at 17x17: 7x7 convolutions as 1x7 and 7x1."""
        row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        return Branches(
            self.chain(inputs, (192, 1)),
            self.chain(inputs, (within, 1), (within, *row), (192, *column)),
            self.chain(inputs, (within, 1), (within, *column), (within, *row), (within, *column), (192, *row)),
            nn.Sequential(_AVERAGE(), self.chain(inputs, (192, 1))),
        )

    def halve_again(self, inputs: int) -> nn.Module:
        """Return the block from 17x17 to 8x8."""
        return Branches(
            self.chain(inputs, (192, 1), (320, 3, 2)),
            self.chain(inputs, (192, 1), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2)),
            nn.MaxPool2d(3, 2),
        )

    def widened(self, inputs: int) -> nn.Module:
        """Return figure 7's block, at 8x8: 3x3 convolutions as 1x3 beside 3x1."""

        def both(before: int) -> nn.Module:
            return Branches(self.chain(before, (384, (1, 3), 1, (0, 1))), self.chain(before, (384, (3, 1), 1, (1, 0))))

        return Branches(
            self.chain(inputs, (320, 1)),
            nn.Sequential(self.chain(inputs, (384, 1)), both(self.c(384))),
            nn.Sequential(self.chain(inputs, (448, 1), (384, 3, 1, 1)), both(self.c(384))),
            nn.Sequential(_AVERAGE(), self.chain(inputs, (192, 1))),
        )


def model(width: float = 1.0) -> nn.Module:
    """Return the network."""
    make = Builder(width)

    def of(*channels: int) -> int:
        return sum(map(make.c, channels))

    stem = make.chain(3, (32, 3, 2), (32, 3), (64, 3, 1, 1))
    late_stem = make.chain(of(64), (80, 1), (192, 3))
    at17, at8 = of(192, 192, 192, 192), of(320, 384, 384, 384, 384, 192)
    return nn.Sequential(
        stem,
        nn.MaxPool2d(3, 2),
        late_stem,
        nn.MaxPool2d(3, 2),
        make.same(of(192), 32),
        make.same(of(64, 64, 96, 32), 64),
        make.same(of(64, 64, 96, 64), 64),
        make.halve(of(64, 64, 96, 64)),
        make.rows_and_columns(of(384, 96, 64, 64, 96, 64), 128),
        make.rows_and_columns(at17, 160),
        make.rows_and_columns(at17, 160),
        make.rows_and_columns(at17, 192),
        make.halve_again(at17),
        make.widened(at17 + of(320, 192)),
        make.widened(at8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(at8, 1000),
    )


def example(batch: int = 1, size: int = 299) -> Any:
    """Return an input."""
    return torch.randn(batch, 3, size, size)
