"""Copies of tvmconv.torch.optimize that change: threads, copies of copies, compiling anew, what cannot be compiled, signatures."""

from __future__ import annotations

import collections
import copy
import inspect
import itertools
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch_changes import alike, assert_equal, calls, hooked  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import InputError, TvmconvWarning  # noqa: E402
from tvmconv.torch import computed  # noqa: E402


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("changed") / "bundle"


@pytest.fixture
def small(bundle: Path) -> Callable[..., tuple[nn.Module, nn.Module, Any]]:
    def made(model: nn.Module | None = None, **options: Any) -> tuple[nn.Module, nn.Module, Any]:
        torch.manual_seed(0)
        model = (model or Small()).eval().requires_grad_(False)
        data = torch.rand(2, 8)
        return model, tvmconv.torch.optimize(model, data, bundle, progress=None, **options), data

    return made


SHARED = torch.ones(1)


class Small(nn.Module):
    """Reads an attribute, and what PyTorch is set to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(8, 4), 1.0

    def forward(self, x: Any) -> Any:
        return self.linear(x) * self.scale


class Asking(Small):
    """Reads what PyTorch is set to, and a tensor that is not its own."""

    def forward(self, x: Any) -> Any:
        y = self.linear(x) * SHARED
        return y if torch.is_grad_enabled() else y * 2


def test_what_pytorch_is_set_to(small: Any) -> None:
    model, fast, data = small(Asking())
    for way in (torch.no_grad, torch.enable_grad, torch.no_grad):
        with way():
            alike(fast(data), model(data))
    assert len(calls(fast)) == 1
    SHARED.add_(1)
    alike(fast(data), model(data))
    SHARED.sub_(1)
    alike(fast(data), model(data))
    assert calls(fast)[1:] == ["SHARED of module test_torch_changed_copies has other values"]
    with torch.autocast("cpu", torch.bfloat16):
        assert_equal(fast(data), model(data))


def test_what_is_not_read_may_change(small: Any) -> None:
    model, fast, data = small()
    fast.note, fast.linear.other = 3, [1]
    globals()["UNREAD"] = 1
    for _ in range(3):
        fast.note += 1
        alike(fast(data), model(data))
    assert calls(fast) == []


def test_copies_notice_changes_of_before_and_after(small: Any) -> None:
    model, fast, data = small()
    changed = copy.deepcopy(fast)
    changed.scale = 2.0
    for each in (changed, copy.deepcopy(changed)):
        with pytest.warns(TvmconvWarning, match=r"scale was 1\.0 and is 2\.0"):
            alike(each(data), model(data) * 2)
        each.scale = 1.0
        alike(each(data), model(data))
        assert len(calls(each)) == 1
    alike(fast(data), model(data))
    assert calls(fast) == []


def test_a_changed_model_is_compiled_once(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, fast, data = small(changed="compile")
    built: list[int] = []
    real, begun, go_on = computed.compute_model, threading.Event(), threading.Event()

    def counted(*args: Any) -> Any:
        built.append(1)
        begun.set()
        assert go_on.wait(60)
        return real(*args)

    monkeypatch.setattr("tvmconv.torch.replacing.compute_model", counted)
    for each in (model, fast):
        each.scale = 2.0
    answers: list[Any] = []
    first = threading.Thread(target=lambda: answers.append(fast(data)))
    first.start()
    assert begun.wait(60)
    for _ in range(3):  # PyTorch's, meanwhile
        assert_equal(fast(data), model(data))
    go_on.set()
    first.join()
    alike(answers[0].detach(), model(data))
    said = calls(fast)
    for scale in (2.0, 1.0, 2.0, 1.0):
        for each in (model, fast):
            each.scale = scale
        alike(fast(data), model(data))
    assert built == [1] and calls(fast) == said and len(tvmconv.torch.networks(fast)) == 2


def test_what_cannot_be_compiled_anew_is_pytorchs(small: Any) -> None:
    model, fast, data = small(changed="compile")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with hooked(fast, "register_forward_hook", lambda module, given, answer: answer * 2, "linear"):
            for _ in range(2):
                alike(fast(data), model(data) * 2)
    assert len([each for each in told if "cannot be compiled anew: a hook looks at linear" in str(each.message)]) == 1
    alike(fast(data), model(data))
    assert len(tvmconv.torch.networks(fast)) == 1


def test_a_model_that_changes_always_is_compiled_a_few_times(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvmconv.torch.answering.MOST_STATES", 2)
    model, fast, data = small(changed="compile")
    with pytest.warns(TvmconvWarning, match="has changed 2 times"):
        for scale in (2.0, 3.0, 4.0):
            for each in (model, fast):
                each.scale = scale
            alike(fast(data), model(data))
    assert len(tvmconv.torch.networks(fast)) == 2


def test_bad_values(small: Any) -> None:
    with pytest.raises(InputError, match="changed is 'again'; allowed: pytorch, and with keep_weights=True compile"):
        small(changed="again")


def test_a_copy_has_the_models_signature(small: Any) -> None:
    model, fast, data = small()
    assert inspect.signature(fast.forward) == inspect.signature(model.forward)
    rows = torch.export.Dim("rows", min=2, max=9)
    program = torch.export.export(fast, (data,), dynamic_shapes={"x": {0: rows}})
    alike(program.module()(torch.ones(5, 8)), model(torch.ones(5, 8)))


class Turning(Small):
    """Multiplies by the numbers of an iterator, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = itertools.cycle([1.0, 2.0])

    def forward(self, x: Any) -> Any:
        return self.linear(x) * next(self.turns)


def test_iterators_are_pytorchs(small: Any) -> None:
    model, fast, data = small(Turning())
    fast.turns = copy.deepcopy(model.turns)
    with pytest.warns(
        TvmconvWarning, match="turns is an iterator, which gives something else in each call; using PyTorch"
    ):
        for _ in range(3):
            assert_equal(fast(data), model(data))


class Counted(Small):
    """Counts its calls in objects."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = types.SimpleNamespace(last=collections.deque([1.0], maxlen=2), seen={"names": set()})

    def forward(self, x: Any) -> Any:
        self.inside.last.append(self.inside.last[-1] + 1)
        self.inside.seen["names"].add(self.inside.last[-1])
        return self.linear(x) * sum(self.inside.last) * len(self.inside.seen["names"])


def test_a_copy_starts_as_the_model_was(small: Any) -> None:
    model, fast, data = small(nn.Sequential(Counted(), nn.Linear(4, 4)))
    assert "its code writes to 0.inside." in tvmconv.torch.report(fast).refused[""]
    for count in range(1, 4):
        alike(fast(data), model(data))
        assert len(model[0].inside.seen["names"]) == count
