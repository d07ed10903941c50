"""Models that return objects which hold tensors, as language models do their keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import SourceError  # noqa: E402
from tvmconv.torch.exporting import export  # noqa: E402
from tvmconv.torch.flat import Flat  # noqa: E402


class Layer:
    """Keys and values, and what they are like."""

    def __init__(self, keys: Any, values: Any) -> None:
        self.keys, self.values, self.dtype, self.device, self.length = (
            keys,
            values,
            keys.dtype,
            keys.device,
            keys.shape[1],
        )


class Cache:
    """The layers of a model, and their class."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.kind, self.note = Layer, None


@dataclass
class Answer:
    """As models return it that have several answers."""

    scores: Any
    cache: Cache


class Decoder(nn.Module):
    """Two layers, each of which keeps its keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 16) for _ in range(2))

    def forward(self, data: Any) -> Any:
        cache = Cache()
        for layer in self.layers:
            keys, values = layer(data).chunk(2, -1)
            cache.layers.append(Layer(keys.contiguous(), values.contiguous()))
            data = data + keys * values
        return Answer(data, cache)


class Numbers(nn.Module):
    """Returns what is no object that holds tensors."""

    def __init__(self, made: Any) -> None:
        super().__init__()
        self.made = made

    def forward(self, data: Any) -> Any:
        return self.made(data)


def check(answer: Any, right: Any) -> None:
    assert type(answer) is Answer and type(answer.cache) is Cache and answer.cache.kind is Layer and answer.cache.note is None  # fmt: skip
    assert_near(answer.scores, right.scores, summed=2 * 8, layers=4)
    for found, wanted in zip(answer.cache.layers, right.cache.layers, strict=True):
        assert_near((found.keys, found.values), (wanted.keys, wanted.values), summed=2 * 8, layers=4)
        assert (found.dtype, found.device, found.length) == (wanted.dtype, wanted.device, wanted.length)


def test_answers_that_are_objects(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = Decoder().eval(), torch.randn(1, 5, 8)
    fast = tvmconv.torch.optimize(model, data, tmp_path / "model.bundle", progress=None)
    report = tvmconv.torch.report(fast)
    assert not report.refused and not report.calls
    other = torch.randn(1, 5, 8)
    with torch.no_grad():
        check(fast(other), model(other))
        assert not tvmconv.torch.report(fast).calls and fast(other).cache is not fast(other).cache
        tvmconv.torch.compile(model, data, tmp_path / "model.so", progress=None)
        check(tvmconv.torch.load(tmp_path / "model.so")(other), model(other))


class Ring:
    """Refers to itself."""

    def __init__(self, data: Any) -> None:
        self.data, self.next = data, self


class Slotted:
    """Has no attributes that are in its dict."""

    __slots__ = ("data",)

    def __init__(self, data: Any) -> None:
        self.data = data


@pytest.mark.parametrize("made", [Ring, Slotted, lambda data: {data}, lambda data: lambda: data])
def test_answers_that_are_no_such_objects_are_refused(made: Any) -> None:
    with pytest.raises(SourceError, match=r"takes or returns a .*; allowed: tensors, numbers, text and None"):
        export(Flat(Numbers(made).eval(), (torch.randn(2),), {}))
