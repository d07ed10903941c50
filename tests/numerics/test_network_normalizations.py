"""Normalizations of a plan in bf16: they read it and write it, without conversions beside, and round once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from ml_dtypes import bfloat16  # noqa: E402
from torch import nn  # noqa: E402

from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402


class Everything(nn.Module):
    """Normalizations of the same data, of groups by channels, and of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = nn.ModuleList(nn.GroupNorm(groups, 24) for groups in (1, 4, 12))
        self.rows = nn.LayerNorm(37)

    def forward(self, data: Any) -> Any:
        return *(each(data) for each in self.groups), self.rows(data)


@pytest.mark.parametrize("layout", ["NCX", "NXC"])
def test_normalizations_of_bf16(layout: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Everything().eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    network, data = network.bfloat16(), (torch.randn(2, 24, 11, 37) * 3 + 100).bfloat16()
    with torch.no_grad():
        build(read_torch(torch.export.export(network, (data,))), tmp_path / "network.so", layout=layout)
        right = network.double()(data.double())
    compiled = load_network(tmp_path / "network.so")
    given = {compiled.inputs[0].name: data.float().numpy().astype(bfloat16)}
    for answer, expected in zip(compiled(**given).values(), right, strict=True):
        error = np.abs(answer.astype(np.float64) - expected.numpy())
        assert np.all(error <= 2.0**-8 * np.abs(expected.numpy()) + 1e-4)
    names = [each.name for each in compiled.operators(given, 0.001)]
    assert not [name for name in names if name.startswith("cast")], names
