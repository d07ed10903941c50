"""Programs of torch.export whose filters are computed of parameters, and those that take an image alone, as problems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from near import assert_near

from tvmconv import reference
from tvmconv.frontends import read_model

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402


class Computed(nn.Module):
    """A convolution whose filter a function computes of its weight."""

    def __init__(self, conv: Any, filter_: Callable[[Any], Any]) -> None:
        super().__init__()
        self.conv, self.filter = conv, filter_

    def forward(self, x: Any) -> Any:
        return F.conv2d(x, self.filter(self.conv.weight), self.conv.bias)


class Moving(nn.Module):
    """A module that changes its filter in each call, so that neither it nor values computed from it are fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kernel", torch.randn(4, 4, 1, 1))

    def forward(self, x: Any) -> Any:
        before = self.kernel * 2
        y = F.conv2d(x, before)
        self.kernel.add_(1)
        return F.conv2d(y, self.kernel)


def standardized(w: Any) -> Any:
    return (w - w.mean((1, 2, 3), keepdim=True)) / w.std((1, 2, 3), keepdim=True)


def without_corner(w: Any) -> Any:
    w = w.clone()
    w[:, :, 0, 0] = 0
    return w


def masked(w: Any) -> Any:
    return w * (torch.arange(w.shape[-1]) > 0)


def merged(w: Any) -> Any:
    return F.conv2d(w, w[:, :, :1, :1])


def save(model: nn.Module, data: Any, path: Path) -> str:
    with torch.no_grad():
        torch.export.save(torch.export.export(model.eval(), (data,)), path)
    return str(path)


def test_computed_filters_are_fixed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    ways = [standardized, without_corner, masked, merged]
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Conv2d(4, 4, 3)),
        parametrizations.spectral_norm(nn.Conv2d(4, 4, 3)),
        parametrizations.weight_norm(nn.ConvTranspose2d(4, 4, 2, 2)),
        *(Computed(nn.Conv2d(4, 4, 3), way) for way in ways),
    )
    data = torch.randn(1, 4, 14, 14)
    found = read_model(save(model, data, tmp_path / "m.pt2"), with_constants=True)
    assert len(found.nodes) == len(model) and not found.skipped
    with torch.no_grad():
        for node, layer in zip(found.nodes, model, strict=True):
            assert node.constants is not None
            right, constants = layer(data), node.constants()
            output = reference.compute(node.problem, data.numpy(), constants.filter, constants.bias)
            assert_near(output, right.numpy(), summed=100, layers=4)
            data = right


def test_what_a_program_writes_to_is_not_fixed(tmp_path: Path) -> None:
    found = read_model(save(Moving(), torch.randn(1, 4, 5, 5), tmp_path / "m.pt2"), with_constants=True)
    assert [node.constants for node in found.nodes] == [None, None]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_images_alone(rank: int, tmp_path: Path) -> None:
    """An axis of rows as long as there are channels is none of them."""
    torch.manual_seed(0)
    conv, up = getattr(nn, f"Conv{rank}d"), getattr(nn, f"ConvTranspose{rank}d")
    factors = torch.rand(4, *(1,) * rank) + 0.5

    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.up, self.last = conv(3, 4, 3, padding="same"), up(4, 4, 2, 2, bias=False), conv(4, 2, 1)
            self.register_buffer("factors", factors)
            self.slope = nn.Parameter(torch.rand(8))

        def forward(self, x: Any) -> Any:
            y = self.up(F.relu(self.one(x) * self.factors + self.factors))
            return self.last(F.prelu(y, self.slope)) if rank > 1 else self.last(y)

    model, data = Alone(), torch.randn(3, *(4,) * rank)
    found = read_model(save(model, data, tmp_path / "m.pt2"), with_constants=True)
    assert [node.problem.batch for node in found.nodes] == [1, 1, 1] and not found.skipped
    assert [len(node.problem.epilogue) for node in found.nodes] == [1, 0, 0]
    node = found.nodes[0]
    assert node.constants is not None
    constants = node.constants()
    output = reference.compute(node.problem, data[None].numpy(), constants.filter, constants.bias)
    with torch.no_grad():
        right = F.relu(model.one(data) * factors + factors)
    assert_near(output[0], right.numpy(), summed=100, layers=4)
