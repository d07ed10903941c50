"""Models with tensors whose sizes depend on other tensors' numbers: networks compute the part before, PyTorch the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402


class Points(nn.Module):
    """Scores, and the places where they are above none."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 1, 1))

    def forward(self, x: Any) -> Any:
        scores = self.scores(x)[0, 0]
        places = torch.nonzero(scores > 0)
        return scores, places.flip(1).float() * 2


def test_places_of_which_nobody_knows_the_number(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Points().eval()
    fast = tvmconv.torch.optimize(network, torch.randn(1, 3, 8, 8), tmp_path, progress=None)
    report = tvmconv.torch.report(fast)
    assert {row.by for row in report if "convolution" in row.computes} != {"PyTorch"}
    x = torch.randn(1, 3, 8, 8)
    for answer, right in zip(fast(x), network(x), strict=True):
        assert_near(answer, right, summed=27 + 4, layers=2)
