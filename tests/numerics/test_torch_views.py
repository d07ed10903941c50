"""Answers that are views of other answers, as the first token that transformers return beside all: views of networks' outputs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.support.cache import VARIABLE  # noqa: E402
from tvmconv.torch import computed  # noqa: E402

DATA = torch.rand(2, 3, 5, 4)
SUMMED = 28


class Pooled(nn.Module):
    """A layer, and views of its result."""

    def __init__(self, answers: Callable[[Any], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.answers = nn.Conv2d(3, 6, 3, padding=1), answers

    def forward(self, data: Any) -> Any:
        return self.answers(self.conv(data))


def first(y: Any) -> Any:
    return y, y[:, 0]


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compile the layer once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("views")))
        yield


def leaves(answer: Any) -> list[Any]:
    return [each for each in pytree.tree_leaves(answer) if isinstance(each, torch.Tensor)]


def assert_shared(fast: nn.Module, model: nn.Module) -> None:
    """Assert that what is written to one answer is seen in the same places of the others."""
    with torch.no_grad():
        for number in range(len(leaves(model(DATA)))):
            found, right = leaves(fast(DATA)), leaves(model(DATA))
            for one, other in zip(found, right, strict=True):
                assert_near(one, other, summed=SUMMED)
                assert one.stride() == other.stride()
            assert [[a is b for b in found] for a in found] == [[a is b for b in right] for a in right]
            for each in (found, right):
                each[number].fill_(7)
            for one, other in zip(found, right, strict=True):
                assert torch.equal(one == 7, other == 7)


@pytest.mark.parametrize(
    "answers",
    [
        first,
        lambda y: (y[:, -1], y),
        lambda y: {"part": y[:, 2:4, 1], "all": y, "mean": y.mean()},
        lambda y: (y.flatten(2).transpose(1, 2), y),
        lambda y: (y, y[:, 1], y[0], y[0, 2:], y.mT),
        lambda y: (part := y[:, 1], y, part, 3, y),
        lambda y: (y[1:1], y[:, :1].expand(2, 4, 5, 4), y),
        lambda y: (torch.special.i0(y), y, y[0]),
        lambda y: (z := torch.special.i0(y), z[:, 2], z.permute(0, 2, 3, 1)),
    ],
)
def test_views_of_an_answer(answers: Any) -> None:
    model = Pooled(answers).eval()
    fast = tvmconv.torch.optimize(model, DATA, progress=None)
    assert tvmconv.torch.report(fast).refused == {}
    assert_shared(fast, model)
    assert_shared(pickle.loads(pickle.dumps(computed_of(fast))), model)


def computed_of(fast: nn.Module) -> Any:
    """Return what answers a model's one example, as a function of a tensor."""
    (how,) = fast.forward.__self__.computed()
    return _Answers(how)


class _Answers:
    def __init__(self, how: Any) -> None:
        self.how = how

    def __call__(self, data: Any) -> Any:
        return self.how([data])


@pytest.mark.parametrize(
    "answers",
    [
        lambda y: (y[:, :4], y[:, 2:]),
        lambda y: (y, y.view(torch.int32)),
        lambda y: (y.permute(1, 0, 2, 3)[:, :, 1:], y[:, :, :3]),
    ],
)
def test_what_lies_within_no_answer(answers: Any) -> None:
    model = Pooled(answers).eval()
    fast = tvmconv.torch.optimize(model, DATA, progress=None)
    assert "share memory" in tvmconv.torch.report(fast).refused[""]
    assert_shared(fast, model)


def test_views_that_torch_export_does_not_see() -> None:
    model = Pooled(lambda y: (y, y[:, 0].clone() if torch.compiler.is_exporting() else y[:, 0])).eval()
    fast = tvmconv.torch.optimize(model, DATA, progress=None)
    assert "share memory" in tvmconv.torch.report(fast).refused[""]
    assert_shared(fast, model)


def test_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Pooled(first).eval()
    tvmconv.torch.optimize(model, DATA, progress=None)
    monkeypatch.setattr(computed, "export", None)
    for folder in (None, tmp_path / "bundle", tmp_path / "bundle"):
        fast = tvmconv.torch.optimize(model, DATA, folder, progress=None)
        assert tvmconv.torch.report(fast).refused == {}
        assert_shared(fast, model)


def test_a_model_that_has_changed() -> None:
    model = Pooled(first).eval()
    fast = tvmconv.torch.optimize(model, DATA, changed="compile", progress=None)
    for each in (fast, model):
        with torch.no_grad():
            each.conv.weight *= 2
    assert_shared(fast, model)
    assert tvmconv.torch.report(fast).refused == {}


def test_a_library_gives_each_answer(tmp_path: Path) -> None:
    model = Pooled(first).eval()
    compiled = tvmconv.torch.compile(model, DATA, tmp_path / "model.so", progress=None)
    assert [each.shape for each in compiled.network.outputs] == [(2, 6, 5, 4), (2, 5, 4)]
    with torch.no_grad():
        assert_near(compiled(DATA), model(DATA), summed=SUMMED)
