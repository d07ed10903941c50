"""Keys of what models compute, by the operators that a call runs, and models that are found again by them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch_models import settled  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch import computed, slices  # noqa: E402
from tvmconv.torch.flat import Flat  # noqa: E402
from tvmconv.torch.watched import watch  # noqa: E402

TABLE = torch.ones(8)


class Layer(nn.Module):
    """A convolution and a function of its answer."""

    def __init__(self, after: Callable[[Any], Any] = torch.relu) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.after, self.scale = nn.Conv2d(3, 8, 3), after, 2.0
        self.table = torch.ones(8)
        self.register_buffer("mean", torch.zeros(8, 1, 1))

    def forward(self, x: Any, times: int = 1) -> Any:
        y = self.conv(x) * self.scale - self.mean
        return self.after(y) * times


def key(model: nn.Module, *args: Any, **kwargs: Any) -> str:
    args = args if args or kwargs else (torch.ones(1, 3, 8, 8),)
    return watch(Flat(model.eval(), args, kwargs))


def test_what_computes_the_same_has_one_key() -> None:
    assert key(Layer()) == key(Layer()) == key(copy.deepcopy(Layer())) == key(Layer(lambda y: y.relu()))
    assert key(Layer(), torch.rand(1, 3, 8, 8)) == key(Layer()) != ""  # the numbers of arguments are none of a model's


class Doubling(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.mul_(2)


def test_arguments_are_left_as_they_were() -> None:
    given = torch.ones(3)
    key(Doubling(), given)
    assert given.tolist() == [1, 1, 1]


def _changed(change: Callable[[Layer], Any]) -> Layer:
    model = Layer()
    with torch.no_grad():
        change(model)
    return model


@pytest.mark.parametrize(
    "other",
    [
        lambda: key(_changed(lambda model: model.conv.weight[0, 0, 0, 0].add_(1e-6))),
        lambda: key(_changed(lambda model: model.mean.add_(1e-6))),
        lambda: key(_changed(lambda model: setattr(model, "scale", 2.0000001))),
        lambda: key(_changed(lambda model: setattr(model, "scale", 2))),
        lambda: key(_changed(lambda model: setattr(model.conv, "stride", (2, 2)))),
        lambda: key(Layer(torch.sigmoid)),
        lambda: key(Layer(lambda y: y + torch.tensor(1.0))),
        lambda: key(Layer(lambda y: y + torch.tensor(2.0))),
        lambda: key(Layer(lambda y: {"y": torch.relu(y)}["y"].transpose(2, 3))),
        lambda: key(Layer(), torch.ones(1, 3, 8, 8), 2),
        lambda: key(Layer(), torch.ones(1, 3, 8, 9)),
        lambda: key(Layer(), torch.ones(2, 3, 8, 8)),
        lambda: key(Layer(), torch.ones(2, 3, 8, 8).to(memory_format=torch.channels_last)),
        lambda: key(Layer(), x=torch.ones(1, 3, 8, 8)),
        lambda: watch(Flat(Layer().eval(), (torch.ones(1, 3, 8, 8),), {}), "strict"),
    ],
)
def test_what_computes_something_else_has_another(other: Callable[[], str]) -> None:
    assert other() not in ("", key(Layer()))


@pytest.mark.parametrize(
    "after",
    [
        lambda y: y if y.sum() > 0 else -y,
        lambda y: y * y.mean().item(),
        lambda y: y * y.sum().tolist(),
        lambda y: y * float(y.numpy().mean()),
        lambda y: y * float(np.asarray(y).mean()),
        lambda y: torch.from_numpy(np.tanh(y.numpy())),
        lambda y: y * len(f"{y}"),
        lambda y: y if y.untyped_storage().nbytes() else -y,
        lambda y: y * TABLE[0],
        lambda y: torch.empty(3).fill_(1.0).sum() * y,
        lambda y: y[y.argmax().item() * 0 :],
        lambda y: y.no_such_attribute,
    ],
)
def test_where_operators_do_not_show_all_there_is_none(after: Callable[[Any], Any]) -> None:
    assert key(Layer(after)) == ""


def test_code_that_asks_is_read_as_torch_export_reads_it() -> None:
    asking = Layer(lambda y: torch.relu(y) if torch.compiler.is_compiling() else y)
    assert key(asking) == key(Layer())
    assert not torch.compiler.is_compiling()


class Several(nn.Module):
    """Answers in a dict: one in another memory order, an argument, a number, and one of a second network."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = settled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)))

    def forward(self, x: Any) -> Any:
        y = self.layers(x)
        return {"y": y.permute(0, 2, 3, 1), "given": x, "number": 3, "sum": y.sum((2, 3))}


@torch.no_grad()
@pytest.mark.parametrize("lies", [torch.contiguous_format, torch.channels_last])
def test_what_is_found_again_is_not_exported(lies: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = Several().eval(), torch.rand(1, 3, 8, 8).contiguous(memory_format=lies)
    first = tvmconv.torch.optimize(model, data, tmp_path / "bundle", progress=None)
    monkeypatch.setattr(computed, "export", None)
    second = tvmconv.torch.optimize(model, data, tmp_path / "bundle", progress=None)
    assert list(tvmconv.torch.report(second)) == list(tvmconv.torch.report(first))
    data = torch.rand(1, 3, 8, 8).contiguous(memory_format=lies)
    expected, answers = model(data), [fast(data) for fast in (first, second, copy.deepcopy(second))]
    for answer in answers:
        assert answer["given"] is data and answer["number"] == 3
        for name in ("y", "sum"):
            assert_near(answer[name], expected[name], summed=27 + 8 + 36, layers=3)
            assert answer[name].stride() == answers[0][name].stride()
    with torch.no_grad():
        model.layers[0].bias.add_(1)
    with pytest.raises(TypeError):  # it would be exported
        tvmconv.torch.optimize(model, data, tmp_path / "bundle", progress=None)


@torch.no_grad()
def test_slices_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"KEPT_BYTES": 0, "SLICE_BYTES": 1, "l3_bytes": lambda: 0}.items():
        monkeypatch.setattr(slices, name, value)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    model = settled(nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 512, 3)))
    data = torch.rand(4, 8, 32, 32)
    tvmconv.torch.optimize(model, data, tmp_path / "bundle", progress=None)
    monkeypatch.setattr(computed, "export", None)
    fast = tvmconv.torch.optimize(model, data, tmp_path / "bundle", progress=None)
    assert len(tvmconv.torch.networks(fast)) == 2
    data = torch.rand(4, 8, 32, 32)
    assert_near(fast(data), model(data), summed=2 * 72, layers=2, numerical_class="transform")
