"""Models that compute with complex numbers, weights among them: networks have their parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402


class Filtered(nn.Module):
    """A global filter of GFNet, whose weights are pairs, and the rotations of a LLaMA, which are complex."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(6, 4, 8, 2))
        self.mixed = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64))
        self.register_buffer("turns", torch.polar(torch.ones(6, 4), torch.randn(6, 4)), persistent=False)

    def forward(self, x: Any) -> Any:
        y = torch.fft.rfft2(x, dim=(1, 2), norm="ortho") * torch.view_as_complex(self.weights)
        y = torch.fft.irfft2(y @ self.mixed, s=(6, 6), dim=(1, 2), norm="ortho")
        return torch.view_as_real(torch.view_as_complex(y.reshape(1, 6, 6, 4, 2).contiguous()) * self.turns).flatten(3)


class Summed(nn.Module):
    """A sum that networks lack of complex numbers, which are given and returned, too."""

    def forward(self, z: Any, x: Any) -> Any:
        y = torch.complex(x, x @ x) * z
        return torch.view_as_real(y.cumsum(0) * 2), y.conj()


def test_transforms_and_complex_weights_are_one_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, x = Filtered().eval(), torch.randn(1, 6, 6, 8)
    fast = tvmconv.torch.optimize(network, x, tmp_path, progress=None)
    other = torch.randn(1, 6, 6, 8)
    assert [row for row in tvmconv.torch.report(fast) if row.why] == []
    assert_near(fast(other), network(other), summed=36 + 8 + 36, layers=5)


def test_what_is_not_known_of_complex_numbers_is_pytorchs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, given = Summed().eval(), (torch.randn(4, 4, dtype=torch.complex64), torch.randn(4, 4))
    fast = tvmconv.torch.optimize(network, given, tmp_path, progress=None)
    assert {row.computes for row in tvmconv.torch.report(fast) if row.by == "PyTorch"} >= {"cumsum.default"}
    for answer, right in zip(fast(*given), network(*given), strict=True):
        assert_near(answer, right, summed=4 * 4, layers=3)


def test_a_library_of_its_own_has_transforms(tmp_path: Path) -> None:
    class Spectrum(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.fft.rfft(x).abs()

    x = torch.ones(2, 12)
    library = tvmconv.torch.compile(Spectrum().eval(), x, tmp_path / "model.so")
    assert_near(library(x)[0, 0], torch.tensor(12.0), summed=12)


def test_bf16_by_complex_numbers_is_computed_in_f32(tmp_path: Path) -> None:
    """As in the heads of vocoders: magnitudes and angles of a spectrum."""

    class Spectrum(nn.Module):
        def forward(self, x: Any) -> Any:
            y = x.exp() * (x.cos() + 1j * x.sin())
            return torch.fft.irfft(y, dim=1), torch.view_as_real(y + x)

    torch.manual_seed(0)
    network, x = Spectrum().eval(), torch.randn(2, 9, 5).bfloat16()
    fast = tvmconv.torch.optimize(network, x, tmp_path, progress=None)
    assert [row for row in tvmconv.torch.report(fast) if row.why] == []
    for answer, right in zip(fast(x), network(x.float()), strict=True):
        assert answer.dtype is torch.float32
        assert (answer - right).norm() < 4e-3 * right.norm()
