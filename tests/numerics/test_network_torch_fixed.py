"""What programs of torch.export compute of their parameters alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.passes import use_kernels  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.network.report import report  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402


class Standardized(nn.Module):  # type: ignore[misc]
    """Convolutions whose filters are computed in each call, in several ways."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(5, 8, 3, padding=1), nn.Conv2d(8, 6, 1)
        self.gain = nn.Parameter(torch.rand(8, 1, 1, 1) + 0.5)
        self.mixing = nn.Parameter(torch.randn(6, 6))
        self.third = nn.utils.parametrizations.spectral_norm(nn.Conv2d(6, 4, 3))
        self.register_buffer("picked", torch.tensor([2, 0, 3, 1]), persistent=False)

    def forward(self, x: torch.Tensor) -> Any:
        flat = self.first.weight.reshape(1, 8, -1)
        standard = F.batch_norm(flat, None, None, self.gain.view(-1) * 0.3, training=True, eps=1e-6)
        x = F.conv2d(x, standard.reshape_as(self.first.weight), self.first.bias, padding=1)
        variance, mean = torch.var_mean(self.second.weight, [1, 2, 3], keepdim=True)
        x = F.conv2d(x.relu(), (self.second.weight - mean) / torch.sqrt(variance + 1e-5), self.second.bias)
        mixed = F.conv2d(x, torch.linalg.inv(self.mixing)[:, :, None, None])
        return self.third(mixed)[:, self.picked], self.gain.sum() * 2, self.picked.flip(0)


def exported() -> tuple[nn.Module, torch.Tensor, Any]:
    torch.manual_seed(0)
    model, data = Standardized().eval(), torch.randn(1, 5, 9, 8)
    with torch.no_grad():
        return model, data, torch.export.export(model, (data,), strict=False)


def test_answers_are_pytorchs(tmp_path: Path) -> None:
    model, data, program = exported()
    build(read_torch(program), tmp_path / "network.so", math="strict")
    network = load_network(tmp_path / "network.so")
    with torch.no_grad():
        expected = model(data)
    for answer, right in zip(network(**{network.inputs[0].name: data.numpy()}).values(), expected, strict=True):
        assert_near(answer, right.numpy(), summed=5 * 9 + 8 * 9, layers=6)


def test_all_convolutions_have_kernels() -> None:
    rows = report(use_kernels(read_torch(exported()[2]), math="strict"))
    assert len(rows) == 4
    assert not [row.why for row in rows if row.why]


class Biased(nn.Module):  # type: ignore[misc]
    """Attention with fixed masks: by numbers, by truth values, and one that leaves nothing of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(3, 1, 9, 9))
        some = torch.rand(9, 9) > 0.5
        some[4] = False
        self.register_buffer("some", some)

    def forward(self, x: torch.Tensor) -> Any:
        attend = F.scaled_dot_product_attention
        near = (torch.arange(9)[:, None] - torch.arange(9)).abs() < 3
        bias = self.bias.expand(3, 2, 9, 9)
        return attend(x, x, x, bias), attend(x, x, x, near), attend(x, x, x, self.some)


def test_fixed_masks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = Biased().eval(), torch.randn(3, 2, 9, 4)
    with torch.no_grad():
        program, expected = torch.export.export(model, (data,), strict=False), model(data)
    build(read_torch(program), tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    for answer, right in zip(network(**{network.inputs[0].name: data.numpy()}).values(), expected, strict=True):
        assert_near(answer, right.numpy(), summed=4 + 9, layers=3)
    # Of the last alone it is asked which rows are masked whole.
    assert str(read_torch(program)).count("R.max(") == 1
