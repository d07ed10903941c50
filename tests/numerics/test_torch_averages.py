"""Average poolings of an optimized network: by kernels, where PyTorch counts all pixels alike."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch.channelwise import Unweighted  # noqa: E402

F = nn.functional


class _Pools(nn.Module):
    """Each pooling of what a convolution computes."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.same, self.padded = nn.AvgPool2d(3, 1, 1), nn.AvgPool2d((3, 2), (2, 1), (1, 0))
        # Not counted alike, or nearly of all pixels.
        self.edges, self.up = nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.AvgPool2d(2, ceil_mode=True)
        self.third, self.large = nn.AvgPool2d(2, divisor_override=3), nn.AvgPool2d(6)

    def forward(self, x: Any) -> Any:
        y = self.before(x)
        layers = [self.after(self.same(y)), self.padded(y), F.avg_pool2d(y, 2), self.same(F.avg_pool2d(x, (2, 3), 1))]
        return *layers, self.edges(y), self.up(y), self.third(y), self.large(y)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return _Pools().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("averages") / "bundle"


@pytest.fixture(scope="module")
def fast(network: nn.Module, bundle: Path) -> nn.Module:
    return tvmconv.torch.optimize(network, torch.randn(2, 4, 7, 9), bundle=bundle, progress=None)


def test_are_the_means(network: nn.Module, fast: nn.Module) -> None:
    data = torch.randn(2, 4, 7, 9)
    for _ in range(2):
        for given, expected in zip(fast(data), network(data), strict=True):
            torch.testing.assert_close(given, expected, rtol=1e-5, atol=1e-6)


def test_what_computes_them(fast: nn.Module) -> None:
    rows = {row.layer: row for row in tvmconv.torch.report(fast) if "avg_pool2d" in row.computes}
    assert set(rows) == {"padded", "average_avg_pool2d", "average_avg_pool2d_1", "average_same", "average_same_1"}
    assert not any(row.why for row in rows.values())
    assert {name for name, module in fast.named_modules() if type(module) is nn.AvgPool2d} == {
        "edges", "up", "third", "large",
    }  # fmt: skip


def test_other_channels_and_types_are_pytorchs(fast: nn.Module) -> None:
    pool = fast.average_same
    assert isinstance(pool, Unweighted)
    for data in (torch.randn(1, 3, 5, 5), torch.randn(8, 5, 5), torch.randn(1, 8, 5, 5).double()):
        assert torch.equal(pool(data), F.avg_pool2d(data, 3, 1, 1))


def test_has_no_state(network: nn.Module, fast: nn.Module) -> None:
    assert fast.state_dict().keys() == network.state_dict().keys()
    changed = copy.deepcopy(network)
    changed.before.weight.mul_(2)
    other = copy.deepcopy(fast)
    other.load_state_dict(changed.state_dict())
    data = torch.randn(2, 4, 7, 9)
    torch.testing.assert_close(other(data)[1], changed(data)[1], rtol=1e-5, atol=1e-6)


def test_plans_have_filters_of_their_own(network: nn.Module, fast: nn.Module) -> None:
    """A plan does not ask whether the ones are what they were, nor where."""
    moved, data = copy.deepcopy(fast), torch.randn(2, 4, 7, 9)
    moved(data)
    for layer in moved.modules():
        if isinstance(layer, Unweighted):
            old, layer.weight.data = layer.weight.data, layer.weight.data.clone()
            old.fill_(torch.nan)
    for given, expected in zip(moved(data), network(data), strict=True):
        torch.testing.assert_close(given, expected, rtol=1e-5, atol=1e-6)


def test_in_bf16_rounds_once(network: nn.Module, bundle: Path) -> None:
    data = torch.randn(2, 4, 7, 9).bfloat16()
    fast = tvmconv.torch.optimize(network, data.float(), bundle=bundle, dtype=torch.bfloat16, progress=None)
    given = fast(data)[2]
    exact = F.avg_pool2d(fast.before(data).double(), 2)
    assert ((given.double() - exact).abs() <= 2**-8 * exact.abs() + 1e-6).all()


def test_computes_gradients(fast: nn.Module) -> None:
    data = torch.randn(2, 4, 7, 9, requires_grad=True)
    fast(data)[1].sum().backward()
    assert data.grad is not None


def test_is_compiled(network: nn.Module, fast: nn.Module) -> None:
    data = torch.randn(2, 4, 7, 9)
    program = torch.export.export(fast, (data,)).module()
    torch.testing.assert_close(program(data)[1], network(data)[1], rtol=1e-5, atol=1e-6)
