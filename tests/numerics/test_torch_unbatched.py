"""Networks of images alone, of no batch: convolutions, transposed ones, pools and norms of one to three dimensions."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402


class Alone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList()
        for rank in (1, 2, 3):
            conv, up, *pools = (
                getattr(nn, f"{name}{rank}d")
                for name in ("Conv", "ConvTranspose", "MaxPool", "AvgPool", "AdaptiveAvgPool", "InstanceNorm")
            )
            self.parts.append(
                nn.Sequential(
                    conv(4, 8, 3, padding=1), nn.ReLU(), pools[0](2), up(8, 4, 2, 2, groups=2), pools[1](2),
                    conv(4, 4, 3, padding="same", padding_mode="circular"), pools[3](4, affine=True), pools[2](2), conv(4, 2, 1),
                )
            )  # fmt: skip

    def forward(self, *images: Any) -> Any:
        return [part(image) for part, image in zip(self.parts, images, strict=True)]


@torch.no_grad()
def test_images_alone() -> None:
    torch.manual_seed(0)
    model, images = Alone().eval(), [torch.randn(4, *(8,) * rank) for rank in (1, 2, 3)]
    fast = tvmconv.torch.compile(model, tuple(images), progress=None)
    torch.testing.assert_close(fast(*images), model(*images), rtol=1e-4, atol=1e-4)
