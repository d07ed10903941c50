"""Answers in types of few digits beside those of more: errors that rounding explains, and others."""

from __future__ import annotations

import copy
from itertools import chain
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tvmconv.torch.examples import draw_roundings, is_no_worse, run, run_exactly  # noqa: E402


class Matching(nn.Module):
    """Compares what two layers make of an input, as CLIP does: one number, of which cancellation leaves few digits."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(64, 48), nn.Linear(64, 48)

    def forward(self, x: Any) -> Any:
        left, right = self.left(x), self.right(x)
        right = right - left * (left * right).mean(-1, keepdim=True) / (left * left).mean(-1, keepdim=True)
        return (left * right).mean(-1), left, right

    def fused(self, x: Any) -> Any:
        """Return the answer as networks compute it, in f32 between what is rounded."""
        left, right = (layer.float()(x.float()).bfloat16().float() for layer in (self.left, self.right))
        right = right - left * ((left * right).mean(-1, keepdim=True) / (left * left).mean(-1, keepdim=True)).bfloat16()
        left, right = left.bfloat16(), right.bfloat16()
        return (left * right).float().mean(-1).bfloat16(), left, right


def draw(seed: int) -> tuple[Any, ...]:
    """Return a model, an example, its answer, the exact one, and one that is rounded elsewhere."""
    torch.manual_seed(seed)
    model = Matching().eval().to(torch.bfloat16)
    data = torch.randn(1, 64).to(torch.bfloat16)
    example = ((data,), {})
    with torch.no_grad():
        good = copy.deepcopy(model).fused(data)
    return model, example, run(model, example)[0], run_exactly(model, example), good


def test_numbers_that_cancel_are_judged_by_several_roundings() -> None:
    by_one = 0
    for seed in range(40):
        model, example, answer, exact, good = draw(seed)
        by_one += is_no_worse(good, exact, [(answer, exact)])
        assert is_no_worse(good, exact, chain([(answer, exact)], draw_roundings(model, example))), seed
    assert by_one < 40


def test_answers_of_other_weights_are_worse_than_any_rounding() -> None:
    for seed in range(10):
        model, example, answer, exact, (number, left, right) = draw(seed)
        for bad in ((number, right, left), (number, left, right * 1.1), (number, left), (number, left, right.mT)):
            assert not is_no_worse(bad, exact, chain([(answer, exact)], draw_roundings(model, example)))


def test_roundings_leave_the_model_as_it_is() -> None:
    model, example, answer, _, _ = draw(0)
    assert sum(1 for _ in draw_roundings(model, example)) > 1
    assert torch.equal(run(model, example)[0][1], answer[1])
