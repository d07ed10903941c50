"""What is reduced over stacks, by their parts, beside PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402

from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.network.rewrite.unstack import unstack  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402


class Selecting(nn.Module):  # type: ignore[misc]
    """Convolutions whose outputs are chosen from by factors, stacked along an axis."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.paths = nn.ModuleList(nn.Conv2d(6, 8, 2 * size + 1, padding=size) for size in range(3))
        self.factors, self.axis = nn.Conv2d(8, 24, 1), axis

    def forward(self, x: torch.Tensor) -> Any:
        parts = torch.stack([path(x).relu() for path in self.paths], self.axis)
        means = parts.sum(self.axis).mean((2, 3), keepdim=True)
        shares = self.factors(means).reshape(len(x), 3, 8, 1, 1).softmax(1).movedim(1, self.axis)
        return (parts * shares).sum(self.axis), parts.amax(self.axis), (parts * 2 + shares).mean(self.axis)


class Splitting(nn.Module):  # type: ignore[misc]
    """A convolution whose channels are cut in parts."""

    def __init__(self) -> None:
        super().__init__()
        self.both, self.shares = nn.Conv2d(5, 16, 3, groups=1), nn.Conv2d(8, 16, 1)

    def forward(self, x: torch.Tensor) -> Any:
        parts = self.both(x).reshape(len(x), 2, 8, *(size - 2 for size in x.shape[2:]))
        shares = self.shares(parts.sum(1).mean((2, 3), keepdim=True)).sigmoid()
        return (parts * shares.reshape(len(x), 2, 8, 1, 1)).sum(1), parts.mean(2), parts.sum(1, keepdim=True)


CASES = {
    "stack of channels": (Selecting(1), (2, 6, 9, 7)),
    "stack in front": (Selecting(0), (1, 6, 9, 7)),
    "channels in parts": (Splitting(), (2, 5, 9, 8)),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_reduced_over_a_stack(case: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, shape = CASES[case]
    data = torch.randn(shape)
    with torch.no_grad():
        program = torch.export.export(model.eval(), (data,), strict=False)
        build(read_torch(program), tmp_path / "network.so", math="strict")
        network, expected = load_network(tmp_path / "network.so"), model(data)
    answers = network(**{network.inputs[0].name: data.numpy()}).values()
    for answer, right in zip(answers, expected, strict=True):
        assert_near(answer, right.numpy(), summed=6 * 9 + 9 * 8, layers=6)


def test_no_stack_is_left() -> None:
    model, shape = CASES["stack of channels"]
    text = str(unstack(read_torch(torch.export.export(model.eval(), (torch.randn(shape),), strict=False))))
    assert "R.concat" not in text
    assert "R.stack" not in text
