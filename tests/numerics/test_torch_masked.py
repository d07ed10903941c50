"""What masks choose, is computed and is written back by the same mask: it has no sizes of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.network.read.torch.decompose import decompose  # noqa: E402


class Function(nn.Module):
    """A model that is a function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def farthest(x: Any) -> Any:
    """Points that are far apart, as PointNet++ samples them."""
    distance, last, found = torch.full(x.shape[:2], 1e10), torch.zeros(len(x), dtype=torch.long), []
    for _ in range(3):
        found.append(last)
        near = ((x - x[torch.arange(len(x)), last][:, None]) ** 2).sum(-1)
        mask = near < distance
        distance[mask] = near[mask]
        last = distance.max(-1)[1]
    return torch.stack(found, 1), distance


def written(x: Any, mask: Any, values: Callable[[Any], Any]) -> Any:
    y = x.clone()
    y[mask] = values(mask)
    return y


def both(x: Any) -> Any:
    y = written(x, x > 0, lambda mask: torch.log(x[mask]))  # of others it is no number
    y[~(x > 0)] = x[~(x > 0)] ** 2 - x[~(x > 0)].abs()
    return y


def inner(x: Any) -> Any:
    """A mask of the last axis, and what is broadcast to it."""
    mask, y = x.sum((0, 1)) > 0, torch.zeros_like(x)
    y[:, :, mask] = (x[:, :, mask] * torch.arange(9.0)[:, None]).exp()
    return y


KNOWN = {
    "farthest": farthest,
    "rows": lambda x: written(x, x.sum(-1) > 0, lambda mask: 2 * x[mask] + 1),
    "both": both,
    "inner": inner,
    "whole numbers": lambda x: written((9 * x).long(), x > 0, lambda mask: (5 * x[mask]).long()),
}
OTHERS = {
    "a sum": lambda x: written(x, x > 0, lambda mask: x[mask] / x[mask].sum()),
    "a scan": lambda x: written(x, x > 0, lambda mask: x[mask].cumsum(0)),
    "added": lambda x: x.clone().index_put((x > 0,), x[x > 0], accumulate=True),
    "an answer": lambda x: x[x > 0] * 2,
    "a division": lambda x: written((9 * x).long(), x > 1, lambda m: 7 // (9 * x).long()[m]),
}


def sizes(function: Callable[[Any], Any], *data: Any) -> int:
    """Compare a program with its model; return how many numbers of it depend on numbers."""
    model = Function(function)
    with torch.no_grad():
        program = decompose(torch.export.export(model, (data[0],), strict=False))
        for each in data:
            torch.testing.assert_close(program.module()(each), model(each), rtol=0, atol=0, equal_nan=True)
    return sum(node.target is torch.ops.aten.sym_size.int for node in program.graph.nodes)


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_written_where_it_was_chosen(name: str) -> None:
    torch.manual_seed(0)
    assert sizes(KNOWN[name], torch.randn(2, 9, 5), torch.randn(2, 9, 5), torch.zeros(2, 9, 5)) == 0


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_computed_of_all_that_is_chosen(name: str) -> None:
    torch.manual_seed(0)
    sizes(OTHERS[name], torch.randn(2, 9, 5), torch.randn(2, 9, 5))


def test_a_network_samples_points(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Function(farthest), torch.randn(2, 9, 3)
    fast = tvmconv.torch.optimize(model.eval(), x, tmp_path, progress=None)
    assert [row for row in tvmconv.torch.report(fast) if row.why] == []
    other = torch.randn(2, 9, 3)
    assert_near(fast(other), model(other), summed=3, layers=9)
