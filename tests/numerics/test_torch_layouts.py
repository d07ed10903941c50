"""Layouts of PyTorch models that ConvertLayout brings to channels last, or leaves aloud, where it could not read or TVM not compile."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import TvmconvWarning  # noqa: E402


class FromTheEnd(nn.Module):
    """Permutes axes counted from the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)

    def forward(self, image: Any) -> Any:
        pixels = self.first(image).permute(0, 2, -1, 1).softmax(-1)
        return self.second(pixels.permute(0, -1, 1, 2)).permute(0, -1, -2, 1)


class Unbatched(nn.Module):
    """Convolves four axes as a volume without a batch, and resizes them as images."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ConvTranspose3d(1, 1, (1, 4, 1), bias=False)

    def forward(self, volume: Any) -> Any:
        return functional.interpolate(self.first(volume), scale_factor=[0.7, 2], mode="bilinear")


def test_axes_are_permuted_from_the_end() -> None:
    torch.manual_seed(0)
    model, data = FromTheEnd().eval(), torch.randn(1, 3, 12, 14)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TvmconvWarning)
        compiled = tvmconv.torch.compile(model, data, progress=None)
    assert_near(compiled(data), model(data), summed=9 * 8, layers=3)


def test_a_volume_is_resized_as_images() -> None:
    torch.manual_seed(0)
    model, data = Unbatched().eval(), torch.randn(1, 12, 7, 1)
    with pytest.warns(TvmconvWarning, match="keeps its layout, NCX.* exchanges axes of relax.image.resize2d"):
        compiled = tvmconv.torch.compile(model, data, progress=None)
    assert_near(compiled(data), model(data), summed=4, layers=2)
