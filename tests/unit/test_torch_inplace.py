"""What works in place in PyTorch models, in graphs and under autocast."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.planned import with_plans  # noqa: E402
from tvmconv.torch.rewriting import rewrite  # noqa: E402
from tvmconv.torch.segments import segments  # noqa: E402


class Model(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.norm, self.relu, self.leaky = nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.LeakyReLU(0.2, inplace=True)
        self.factor = nn.Parameter(torch.tensor(0.5))
        self.function = [function]

    def forward(self, x: Any) -> Any:
        return self.function[0](self, x)


def preactivated(m: Any, x: Any) -> Any:
    y = m.a(m.relu(m.norm(m.b(x) * 2)))
    return m.b(m.leaky(y + m.relu(m.norm(y))))


def hard_swish(m: Any, x: Any) -> Any:
    y = m.b(m.a(x))
    return x * y.add_(3.0).clamp_(0.0, 6.0).div_(6.0)


def counts_up(m: Any, x: Any) -> Any:
    y = m.norm(m.a(x).sigmoid())
    y *= 2
    y -= 1
    return m.b(nn.functional.silu(y, inplace=True))


def read_twice(m: Any, x: Any) -> Any:
    y = m.a(x)
    z = m.relu(y)
    return m.b(y) + z


def views(m: Any, x: Any) -> Any:
    y = m.a(x)
    m.relu(y[:, :2])
    return m.b(y)


def given(m: Any, x: Any) -> Any:
    return m.b(m.a(m.relu(x)))


def by_a_tensor(m: Any, x: Any) -> Any:
    return m.b(m.a(x).sigmoid().mul_(m.factor))


def rewritten(model: nn.Module, data: Any) -> Any:
    fast = with_plans(rewrite(model, [((data,), {})], Notice(silent=True)).requires_grad_(False))
    for _ in range(2):
        mine, theirs = data.clone(), data.clone()
        torch.testing.assert_close(fast(mine), model(theirs), rtol=1e-5, atol=1e-6)
        assert torch.equal(mine, theirs)
    return fast


@pytest.mark.parametrize(
    ("function", "whole"),
    [
        (preactivated, True), (hard_swish, True), (counts_up, True), (read_twice, False), (views, False),
        (given, False), (by_a_tensor, False),
    ],
)  # fmt: skip
def test_what_is_planned(function: Any, whole: bool) -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        fast = rewritten(Model(function).eval(), torch.randn(1, 4, 5, 6))
    found = segments(fast.graph, dict(fast.named_modules(remove_duplicate=False)))
    inside = {node for segment in found for node in segment.nodes}
    outside = [node for node in fast.graph.nodes if node.op.startswith("call") and node not in inside]
    assert (not outside) == whole


def test_a_hard_sigmoid_in_place_is_fused() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        fast = rewritten(Model(hard_swish).eval(), torch.randn(1, 4, 5, 6))
    assert [row.computes.partition("_")[0] for row in tvmconv.torch.report(fast)] == ["conv2d", "conv2d-hardsigmoid"]


@pytest.mark.parametrize("in_place", [True, False])
def test_the_type_of_a_sum_under_autocast(in_place: bool) -> None:
    """Of what a convolution computes, bf16, and an input, f32: in place it stays bf16."""

    def block(m: Any, x: Any) -> Any:
        y = m.a(x)
        if in_place:
            y += x
            return m.relu(y)
        return m.relu(y + x)

    torch.manual_seed(0)
    model, data = Model(block).eval(), torch.randn(1, 4, 5, 6)
    with torch.no_grad():
        fast = rewritten(model, data)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(fast(data), model(data))
    assert next(row.computes for row in tvmconv.torch.report(fast)) == "conv2d-add-relu"
