"""Blocks of networks whose fixed filters can be joined: each a small model in PyTorch with random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Block:
    """What makes a block, and the shapes of its inputs."""

    make: Callable[[], nn.Module]
    shapes: Shapes


class Sum(nn.Module):  # type: ignore[misc]
    """Branches of one value, added up, and a ReLU."""

    def __init__(self, *branches: nn.Module, last: nn.Module | None = None) -> None:
        super().__init__()
        self.branches, self.last = nn.ModuleList(branches), last or nn.ReLU()

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(sum(branch(x) for branch in self.branches))


class Joined(nn.Module):  # type: ignore[misc]
    """A convolution of a concatenation, whose first part may be upsampled."""

    def __init__(self, layer: nn.Module, upsamples: bool) -> None:
        super().__init__()
        self.layer, self._upsamples = layer, upsamples

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> Any:
        x = functional.relu(x)
        x = functional.interpolate(x, scale_factor=2.0) if self._upsamples else x
        return self.layer(torch.cat([x, *map(functional.relu, others)], 1))


def _conv(given: int, made: int, taps: int | tuple[int, int], bias: bool = False, **how: Any) -> nn.Module:
    pads = taps // 2 if isinstance(taps, int) else (taps[0] // 2, taps[1] // 2)
    return nn.Conv2d(given, made, taps, padding=pads, bias=bias, **how)


def _normalized(given: int, made: int, taps: int | tuple[int, int]) -> nn.Module:
    return nn.Sequential(_conv(given, made, taps), nn.BatchNorm2d(made))


def _acnet(channels: int, size: int) -> Block:
    taps: tuple[int | tuple[int, int], ...] = (3, (1, 3), (3, 1))
    return Block(lambda: Sum(*(_normalized(channels, channels, each) for each in taps)), ((1, channels, size, size),))


def _diverse(channels: int, size: int) -> Block:
    def make() -> nn.Module:
        chain = nn.Sequential(_conv(channels, channels, 1), _conv(channels, channels, 3), nn.BatchNorm2d(channels))
        average = nn.Sequential(_conv(channels, channels, 1), nn.AvgPool2d(3, 1, 1), nn.BatchNorm2d(channels))
        plain = [_normalized(channels, channels, taps) for taps in (3, 1)]
        return Sum(*plain, chain, average)

    return Block(make, ((1, channels, size, size),))


def _adapter(numbers: int, rank: int, rows: int) -> Block:
    def make() -> nn.Module:
        down, up = nn.Linear(numbers, rank, bias=False), nn.Linear(rank, numbers, bias=False)
        return Sum(nn.Linear(numbers, numbers), nn.Sequential(down, up), last=nn.GELU())

    return Block(make, ((1, rows, numbers),))


def _upsampled(given: int, made: int, size: int) -> Block:
    return Block(
        lambda: nn.Sequential(nn.ReLU(), nn.Upsample(scale_factor=2), _conv(given, made, 3, bias=True), nn.ReLU()),
        ((1, given, size, size),),
    )


def _decoder(below: int, skip: int, made: int, size: int) -> Block:
    def make() -> nn.Module:
        return Joined(nn.Sequential(_normalized(below + skip, made, 3), nn.ReLU()), upsamples=True)

    return Block(make, ((1, below, size // 2, size // 2), (1, skip, size, size)))


def _concatenated(parts: tuple[int, ...], made: int, taps: int, size: int) -> Block:
    def make() -> nn.Module:
        return Joined(nn.Sequential(_normalized(sum(parts), made, taps), nn.ReLU()), upsamples=False)

    return Block(make, tuple((1, part, size, size) for part in parts))


def _resized(given: int, made: int, size: int) -> Block:
    def make() -> nn.Module:
        resize = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        return nn.Sequential(nn.ReLU(), resize, _conv(given, made, 1, bias=True))

    return Block(make, ((1, given, size, size),))


def _pooled(given: int, made: int, size: int) -> Block:
    return Block(
        lambda: nn.Sequential(nn.ReLU(), _conv(given, made, 1), nn.AvgPool2d(2, 2), nn.ReLU()),
        ((1, given, size, size),),
    )


# By kind, and channels and pixels.
BLOCKS: dict[str, Block] = {
    **{f"acnet {c}@{s}": _acnet(c, s) for c, s in ((32, 112), (64, 56), (128, 28), (256, 14), (512, 7))},
    **{f"diverse {c}@{s}": _diverse(c, s) for c, s in ((32, 112), (64, 56), (128, 28), (256, 14), (512, 7))},
    **{f"lora {c}, {r}, {n} rows": _adapter(c, r, n) for c, r, n in ((192, 8, 196), (384, 16, 64), (768, 16, 197), (1024, 64, 8))},
    **{
        f"upsampled {g}-{m}@{s}": _upsampled(g, m, s)
        for g, m, s in ((32, 16, 128), (64, 32, 128), (64, 64, 64), (128, 128, 64), (128, 128, 16), (256, 256, 32), (256, 128, 16),
                        (320, 320, 32), (512, 512, 16), (512, 256, 8))
    },
    **{
        f"decoder {b}+{k}-{m}@{s}": _decoder(b, k, m, s)
        for b, k, m, s in ((64, 32, 32, 128), (128, 64, 64, 64), (256, 128, 128, 32), (512, 256, 256, 16), (96, 24, 48, 112))
    },
    **{
        f"concat {'+'.join(map(str, p))}-{m} {t}x{t}@{s}": _concatenated(p, m, t, s)
        for p, m, t, s in (((64, 64), 16, 1, 55), ((256, 256), 64, 1, 13), ((128, 128), 256, 1, 28), ((96, 96), 96, 3, 16),
                           ((256,) * 4, 256, 1, 16), ((64, 128, 64), 128, 1, 28), ((512, 512), 1024, 1, 7))
    },
    **{f"resized {g}-{m}@{s}": _resized(g, m, s) for g, m, s in ((256, 21, 28), (128, 64, 32), (64, 128, 32))},
    **{f"pooled {g}-{m}@{s}": _pooled(g, m, s) for g, m, s in ((256, 128, 56), (512, 256, 28), (64, 256, 28))},
}  # fmt: skip
