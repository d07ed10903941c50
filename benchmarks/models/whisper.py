"""Whisper's encoder (Radford et al. 2022, tiny): mel spectrograms of 30 seconds, two convolutions, four layers of attention."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

BANDS, FRAMES = 80, 3000
WIDTH, HEADS, LAYERS = 384, 6, 4


class WhisperEncoder(nn.Module):  # type: ignore[misc]
    """The encoder, whose keys have a bias that Whisper's have not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(BANDS, WIDTH, 3, padding=1)
        self.second = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.randn(FRAMES // 2, WIDTH) * 0.02)
        options = {"activation": "gelu", "batch_first": True, "norm_first": True}
        self.layers = nn.Sequential(
            *(nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, **options) for _ in range(LAYERS))
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """Encode a spectrogram (batch, bands, frames)."""
        data = F.gelu(self.second(F.gelu(self.first(data)))).transpose(1, 2)
        return self.norm(self.layers(data + self.positions))
