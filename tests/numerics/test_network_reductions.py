"""Reductions along drawn axes of tensors of 1 to 5, of few elements and of odd numbers, beside PyTorch."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")

from tests.numerics.test_network_torch_operators import wrong  # noqa: E402

SHAPES = [(7,), (1,), (3, 5), (9, 1), (3, 1, 5), (2, 3, 1, 5), (3, 5, 2, 7), (2, 3, 1, 5, 3)]
SEED, CASES = 63, 48
INF = float("inf")

# Along some axes, and along one.
ALONG: list[Callable[..., Any]] = [
    lambda x, axes, kept: (x + 3).sum(axes, kept),
    lambda x, axes, kept: (x + 3).mean(axes, kept),
    lambda x, axes, kept: x.amax(axes, kept),
    lambda x, axes, kept: x.amin(axes, kept),
    lambda x, axes, kept: x.logsumexp(axes, kept),
    lambda x, axes, kept: torch.var_mean(x, axes, correction=0, keepdim=kept),
    lambda x, axes, kept: x.std(axes, unbiased=False, keepdim=kept),
    lambda x, axes, kept: [torch.linalg.vector_norm(x, order, axes, kept) for order in (0, 1, 2, 3, INF, -INF)],
    lambda x, axes, kept: ((x > 1).any(axes, kept), (x > -1).all(axes, kept)),
    lambda x, axes, kept: (x * 4).int().sum(axes, kept),
    lambda x, axes, kept: (x * 4).to(torch.int64).amax(axes, kept),
]
ALONG_ONE: list[Callable[..., Any]] = [
    lambda x, axis, kept: x.prod(axis, kept),
    lambda x, axis, kept: (x.argmax(axis, kept), x.argmin(axis, kept)),
    lambda x, axis, kept: (*x.max(axis, kept), *x.min(axis, kept)),
    lambda x, axis, kept: ((x * 2).int().argmax(axis, kept), (x * 2).to(torch.int8).argmin(axis, kept)),
    lambda x, axis, kept: ((x > 0).max(axis, kept)[0], *x.median(axis, kept), x.kthvalue(1, axis, kept)[0]),
    lambda x, axis, kept: (x.cumsum(axis), x.cumprod(axis), (x * 2).int().cumsum(axis), (x > 0).cumsum(axis)),
    lambda x, axis, kept: (*x.cummax(axis), *x.cummin(axis), *(x > 0).int().cummax(axis), x.logcumsumexp(axis)),
]


def drawn() -> dict[str, Any]:
    """Return functions, each with its tensor."""
    pick, functions = random.Random(SEED), {}
    for number in range(CASES):
        shape, kept = pick.choice(SHAPES), pick.random() < 0.5
        axes = tuple(pick.sample(range(-len(shape), 0), pick.randint(1, len(shape))))
        along = pick.choice([ALONG, ALONG_ONE])
        function, where = pick.choice(along), axes if along is ALONG else axes[0]
        data = torch.randn(shape)
        functions[f"{number}: {along.index(function)} {shape} {where} {kept}"] = (
            lambda x, function=function, where=where, kept=kept: function(x, where, kept),
            (data,),
        )
    scalar = torch.tensor(0.7)
    functions["of no axes"] = (lambda x: (x.sum(0), x.amax(0, True), *x.max(0), x.cumsum(-1), *x.median(0)), (scalar,))
    return functions


def of_several() -> dict[str, Any]:
    """Return sums of what several tensors have along axes around another, which are no products with a vector, but look alike."""
    return {
        f"{rows} rows of {count}": (
            torch.nn.functional.multilabel_margin_loss,
            (torch.randn(rows, count), torch.randint(0, count, (rows, count))),
        )
        for rows, count in ((1, 4), (5, 10), (8, 8), (16, 3))
    }


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_reductions_along_any_axes(name: str, tmp_path: Path) -> None:
    torch.manual_seed(SEED)
    several = of_several() if name == "float32" else {}  # PyTorch has no multilabel_margin_loss of bf16
    assert not wrong(drawn() | several, getattr(torch, name), tmp_path)
