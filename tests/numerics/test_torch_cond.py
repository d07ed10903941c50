"""Models with torch.cond: its branches are PyTorch's in `optimize`, and compiled by `compile`."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from near import assert_near  # noqa: E402
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import TvmconvWarning  # noqa: E402


class Inside(nn.Module):
    """A branch of what other layers compute, and others after it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, data: Any) -> Any:
        data = self.first(data)
        return self.last(torch.cond(data.sum() > 0, lambda x: self.second(x).relu(), lambda x: x * 2, (data,)))


class Layers(nn.Module):
    """Branches that are modules, whose convolutions torch.export (2.9 to 2.12) cannot read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Sequential(nn.Conv2d(8, 8, 3))

    def forward(self, data: Any) -> Any:
        data = self.first(data)
        return torch.cond(data.sum() > 0, lambda x: self.second(x), lambda x: self.third(x), (data,))


@pytest.mark.parametrize(("kind", "shape"), [(Inside, (2, 8)), (Layers, (1, 3, 9, 9))])
def test_what_is_around_a_branch_is_by_networks(kind: Any, shape: tuple[int, ...]) -> None:
    torch._dynamo.reset()  # of other shapes Dynamo compiles branches for any, at which PyTorch's own convolutions fail
    torch.manual_seed(0)
    model, data = kind().eval(), torch.randn(shape)
    fast = tvmconv.torch.optimize(model, data, progress=None)
    report = tvmconv.torch.report(fast)
    assert any(row.by != "PyTorch" for row in report)
    if kind is Inside:
        assert [row.why.partition(" (")[0] for row in report if row.by == "PyTorch"] == ["its branches are PyTorch's"]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", TvmconvWarning)  # as that PyTorch answers, since something has changed
        for each in (data, -data, data * 3):
            assert_near(fast(each), model(each), 72, 3)
