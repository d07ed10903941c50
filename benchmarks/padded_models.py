"""Networks of sound that pad before they convolve and cut off after: of the structure of encodec's SEANet and of Vocos.

Their code decides by sizes, as the originals' does; their weights are random.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

Pads = tuple[int, int]


def pad1d(x: Any, pads: Pads, mode: str) -> Any:
    """Pad, as encodec does: where there is too little to reflect, zeros come first, and are cut off again."""
    if mode != "reflect":
        return functional.pad(x, pads, mode)
    more = 0
    if x.shape[-1] <= max(pads):
        more = max(pads) - x.shape[-1] + 1
        x = functional.pad(x, (0, more))
    padded = functional.pad(x, pads, mode)
    return padded[..., : padded.shape[-1] - more]


class Padded(nn.Module):  # type: ignore[misc]
    """A convolution with pads computed from its input's size, so that the last stride is whole."""

    def __init__(
        self, inputs: int, outputs: int, taps: int, stride: int, dilation: int, causal: bool, mode: str
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, taps, stride, dilation=dilation)
        self.causal, self.mode = causal, mode

    def forward(self, x: Any) -> Any:
        """Pad and compute."""
        taps, stride, dilation = self.conv.kernel_size[0], self.conv.stride[0], self.conv.dilation[0]
        total = (taps - 1) * dilation - (stride - 1)
        frames = (x.shape[-1] - taps + total) / stride + 1
        extra = (math.ceil(frames) - 1) * stride + (taps - total) - x.shape[-1]
        end = 0 if self.causal else total // 2
        return self.conv(pad1d(x, (total - end, end + extra), self.mode))


class Trimmed(nn.Module):  # type: ignore[misc]
    """A transposed convolution whose ends are cut off."""

    def __init__(self, inputs: int, outputs: int, stride: int, causal: bool) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(inputs, outputs, 2 * stride, stride)
        self.causal = causal

    def forward(self, x: Any) -> Any:
        """Compute and cut."""
        total = self.conv.kernel_size[0] - self.conv.stride[0]
        right = total if self.causal else total // 2
        y = self.conv(x)
        assert total <= y.shape[-1]
        return y[..., total - right : y.shape[-1] - right]


class Block(nn.Module):  # type: ignore[misc]
    """SEANet's residual block."""

    def __init__(self, channels: int, causal: bool, mode: str) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.ELU(),
            Padded(channels, channels // 2, 3, 1, 1, causal, mode),
            nn.ELU(),
            Padded(channels // 2, channels, 1, 1, 1, causal, mode),
        )
        self.shortcut = Padded(channels, channels, 1, 1, 1, causal, mode)

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        return self.shortcut(x) + self.block(x)


class Recurrent(nn.Module):  # type: ignore[misc]
    """An LSTM of two layers with a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(channels, channels, 2)

    def forward(self, x: Any) -> Any:
        """Compute it along the last axis."""
        x = x.permute(2, 0, 1)
        return (self.lstm(x)[0] + x).permute(1, 2, 0)


def encoder(filters: int = 32, causal: bool = True, mode: str = "reflect", recurrent: bool = True) -> nn.Module:
    """Return encodec's encoder, from samples to a frame of every 320."""
    layers: list[nn.Module] = [Padded(1, filters, 7, 1, 1, causal, mode)]
    for ratio in (2, 4, 5, 8):
        layers += [
            Block(filters, causal, mode),
            nn.ELU(),
            Padded(filters, 2 * filters, 2 * ratio, ratio, 1, causal, mode),
        ]
        filters *= 2
    layers += [Recurrent(filters)] if recurrent else []
    return nn.Sequential(*layers, nn.ELU(), Padded(filters, 128, 7, 1, 1, causal, mode)).eval()


def decoder(filters: int = 32, causal: bool = True, mode: str = "reflect", recurrent: bool = True) -> nn.Module:
    """Return encodec's decoder, from frames to samples."""
    wide = 16 * filters
    layers: list[nn.Module] = [Padded(128, wide, 7, 1, 1, causal, mode), *([Recurrent(wide)] if recurrent else [])]
    for ratio in (8, 5, 4, 2):
        layers += [nn.ELU(), Trimmed(wide, wide // 2, ratio, causal), Block(wide // 2, causal, mode)]
        wide //= 2
    return nn.Sequential(*layers, nn.ELU(), Padded(wide, 1, 7, 1, 1, causal, mode)).eval()


class Mixer(nn.Module):  # type: ignore[misc]
    """ConvNeXt's block in one dimension."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.expand, self.project = nn.Linear(channels, inner), nn.Linear(inner, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Any) -> Any:
        """Compute the block."""
        y = self.norm(self.depthwise(x).transpose(1, 2))
        y = self.gamma * self.project(functional.gelu(self.expand(y)))
        return x + y.transpose(1, 2)


class InverseStft(nn.Module):  # type: ignore[misc]
    """The inverse STFT by a transform of each frame, or by a transposed convolution; frames overlap, their ends are cut off."""

    def __init__(self, size: int, hop: int, as_convolution: bool) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hann_window(size))
        self.inverse = None
        if as_convolution:
            bins = size // 2 + 1
            basis = torch.fft.irfft(torch.cat([torch.eye(bins), 1j * torch.eye(bins)]), size, dim=1) * self.window
            self.inverse = nn.ConvTranspose1d(2 * bins, 1, size, hop, bias=False)
            self.inverse.weight = nn.Parameter(basis[:, None, :])

    def forward(self, real: Any, imaginary: Any) -> Any:
        """Return samples of frames' real and imaginary parts."""
        cut, frames = (self.size - self.hop) // 2, real.shape[-1]
        squares = self.window.square().expand(1, frames, -1).transpose(1, 2)
        if self.inverse is not None:
            y = self.inverse(torch.cat([real, imaginary], 1))[:, 0, cut:-cut]
        else:
            spectrum = torch.complex(real, imaginary)
            y = self._overlapped(torch.fft.irfft(spectrum, self.size, dim=1) * self.window[None, :, None])[:, cut:-cut]
        return y / self._overlapped(squares)[:, cut:-cut]

    def _overlapped(self, frames: Any) -> Any:
        length = (frames.shape[-1] - 1) * self.hop + self.size
        return functional.fold(frames, (1, length), (1, self.size), stride=(1, self.hop))[:, 0, 0]


class Vocos(nn.Module):  # type: ignore[misc]
    """From mel bands to samples: blocks of one rate, and an inverse STFT."""

    def __init__(self, channels: int, inner: int, layers: int, size: int, hop: int, as_convolution: bool) -> None:
        super().__init__()
        self.embed, self.norm = nn.Conv1d(100, channels, 7, padding=3), nn.LayerNorm(channels, eps=1e-6)
        self.blocks = nn.ModuleList(Mixer(channels, inner) for _ in range(layers))
        self.last, self.out = nn.LayerNorm(channels, eps=1e-6), nn.Linear(channels, size + 2)
        self.inverse = InverseStft(size, hop, as_convolution)

    def forward(self, x: Any) -> Any:
        """Return the samples."""
        x = self.norm(self.embed(x).transpose(1, 2)).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        size, phase = self.out(self.last(x.transpose(1, 2))).transpose(1, 2).chunk(2, dim=1)
        size = torch.exp(size).clip(max=1e2)
        return self.inverse(size * torch.cos(phase), size * torch.sin(phase))


def vocos(channels: int = 512, layers: int = 8, size: int = 1024, as_convolution: bool = False) -> nn.Module:
    """Return Vocos for mel bands."""
    return Vocos(channels, 3 * channels, layers, size, size // 4, as_convolution).eval()
