"""PyTorch models of any size with complex numbers, and with masks that choose what is computed."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from near import assert_near  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import SourceError  # noqa: E402

FREE = ({0: Dim("n"), 1: Dim("t")},)


def rows(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[1]))


class Spectra(nn.Module):
    """Transforms along a fixed axis of as many rows as come, and numbers of a mask."""

    def forward(self, x: Any) -> Any:
        spectrum = torch.fft.rfft(x * 2) * (1 + 2j) + 1
        chosen = x.clone()
        chosen[x > 0] = 2 * x[x > 0] + 1
        return spectrum.abs(), torch.fft.irfft(spectrum), torch.fft.fft(torch.complex(x, chosen)).imag


def test_spectra_of_any_number_of_rows() -> None:
    fast = tvmconv.torch.compile(Spectra().eval(), rows(2, 5, 32), dynamic_shapes=FREE, progress=None)
    for shape in ((2, 5, 32), (1, 17, 32), (3, 1, 32)):
        for found, right in zip(fast(rows(*shape)), Spectra()(rows(*shape)), strict=True):
            assert_near(found, right, summed=64, layers=2)


def test_transforms_along_free_axes_are_named() -> None:
    class Columns(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.fft.fft(x, dim=1).abs()

    with pytest.raises(SourceError, match="it transforms along an axis of free extent"):
        tvmconv.torch.compile(Columns().eval(), rows(2, 5, 32), dynamic_shapes=FREE, progress=None)
