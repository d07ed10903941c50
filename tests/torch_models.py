"""Small networks for the tests of tvmconv.torch, each of patterns that real ones have; and inputs for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Residual(nn.Module):
    """ResNet's block, which halves what it is given: the sum and its ReLU work in place."""

    def __init__(self, inputs: int = 8, outputs: int = 16) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Any) -> Any:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.downsample(x)
        return self.relu(out)


class Inverted(nn.Module):
    """MobileNet's block, whose sum has no activation, with three of those that its successors use."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        wide = 2 * channels
        self.expand = nn.Sequential(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(True))
        self.depthwise = nn.Sequential(nn.Conv2d(wide, wide, 3, 1, 1, groups=wide), nn.BatchNorm2d(wide), nn.SiLU())
        self.project = nn.Sequential(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels))
        self.last = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        return nn.functional.hardswish(self.last(x + self.project(self.depthwise(self.expand(x)))))


class Decoder(nn.Module):
    """A piece of U-Net: a transposed convolution, what was skipped, and a convolution of both."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.ConvTranspose2d(8, 4, 2, 2), nn.BatchNorm2d(4)
        self.both = nn.Conv2d(8, 4, 3, padding="same")

    def forward(self, x: Any, skipped: Any) -> Any:
        up = nn.functional.leaky_relu(self.norm(self.up(x)), 0.1)
        return nn.functional.gelu(self.both(torch.cat([up, skipped], 1)))


class Waves(nn.Module):
    """One dimension: pads that differ at the ends, and a transposed convolution of groups, its BatchNorm folded."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 8, 4, padding="same", dilation=2)
        self.up, self.norm = nn.ConvTranspose1d(8, 12, 3, 2, 1, output_padding=1, groups=2), nn.BatchNorm1d(12)

    def forward(self, x: Any) -> Any:
        return torch.sigmoid(self.norm(self.up(self.conv(x).tanh())))


class Tokens(nn.Module):
    """ConvNeXt's block as many write it: Linears of channels that come last, scaled and added where they come second."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(channels, channels, 3, 1, 1, groups=channels), nn.LayerNorm(channels)
        self.expand, self.project = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))
        self.head, self.last, self.slopes = nn.Linear(channels, 10), nn.BatchNorm1d(10), nn.PReLU(10)

    def forward(self, x: Any) -> Any:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.project(nn.functional.gelu(self.expand(y))).permute(0, 3, 1, 2)
        x = x + self.scale * y
        return self.slopes(self.last(self.head(x.mean((2, 3)))))


class Volumes(nn.Module):
    """Three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv3d(3, 4, 3, padding=(0, 1, 1)), nn.ELU()
        self.up = nn.ConvTranspose3d(4, 2, 2, 2)

    def forward(self, x: Any) -> Any:
        return self.up(self.act(self.conv(x))).clamp(min=0)


class Branching(nn.Module):
    """torch.fx cannot trace it, but its block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.block = nn.Conv2d(3, 8, 1), Residual()

    def forward(self, x: Any) -> Any:
        x = self.conv(x)
        return self.block(x) if x.shape[2] > 1 else x


class Optional(nn.Module):
    """torch.fx traces the way that nobody takes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)

    def forward(self, x: Any, offset: Any = None) -> Any:
        x = self.conv(x)
        return x if offset is None else x + offset


class All(nn.Module):
    """All of them, which build their kernels together."""

    def __init__(self) -> None:
        super().__init__()
        self.networks = nn.ModuleList(each for each, _ in networks())

    def forward(self, *inputs: Any) -> Any:
        return [network(*given) for network, given in zip(self.networks, inputs, strict=True)]


def networks() -> list[tuple[nn.Module, tuple[Any, ...]]]:
    """Return each network with its inputs, the same in each call."""
    torch.manual_seed(1)
    shapes: list[tuple[nn.Module, tuple[tuple[int, ...], ...]]] = [
        (Residual(), ((2, 8, 8, 8),)),
        (Inverted(), ((1, 8, 7, 6),)),
        (Decoder(), ((1, 8, 4, 5), (1, 4, 8, 10))),
        (Waves(), ((2, 4, 9),)),
        (Volumes(), ((1, 3, 4, 5, 6),)),
        (Branching(), ((2, 3, 8, 8),)),
        (Optional(), ((1, 3, 4, 4),)),
        (Tokens(), ((2, 8, 6, 5),)),
    ]
    return [(settled(network), tuple(map(torch.randn, each))) for network, each in shapes]


def settled(network: nn.Module) -> nn.Module:
    """Return a network for inference, its statistics those of some training."""
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
                module.weight.normal_()
                module.bias.normal_()
            if isinstance(module, nn.PReLU):
                module.weight.normal_()
    return network.eval()
