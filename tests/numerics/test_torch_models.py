"""What models' code does beside computing, and tvmconv.torch.optimize follows or leaves to it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import InputError, SourceError  # noqa: E402
from tvmconv.torch.exporting import export  # noqa: E402
from tvmconv.torch.flat import Flat  # noqa: E402
from tvmconv.torch.unchanged import put_back  # noqa: E402

# Products of one output, at most: 3 channels by 3x3 taps.
SUMMED = 27


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def optimized(model: nn.Module, *data: Any) -> tuple[nn.Module, Any]:
    """Return a model optimized, which answers as it does, and the report."""
    fast = tvmconv.torch.optimize(model.eval(), data, progress=None)
    for _ in range(2):
        assert_near(fast(*data), model(*data), summed=SUMMED, layers=4)
    return fast, tvmconv.torch.report(fast)


class Counting(nn.Module):
    """Writes in each call to a buffer, an attribute, a list, and a tensor that is none of its state."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.kept, self.plain = nn.Conv2d(3, 3, 1), [], torch.zeros(1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        y = F.relu(self.conv(x))
        self.calls += 1
        self.plain.add_(1)
        self.kept.append(1)
        self.last = y
        return y * self.calls + self.plain + len(self.kept)


class Caching(nn.Module):
    """Keeps for each shape what YOLO's heads do, in its input's type."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.shape, self.grid = nn.Conv2d(3, 3, 1), None, None

    def forward(self, x: Any) -> Any:
        if self.shape != x.shape:
            self.shape, self.grid = x.shape, torch.arange(x.shape[3]).to(x.dtype)
        return self.conv(x) + self.grid


class Accumulating(nn.Module):
    """Adds to what it is given, as many a decoder does to its state."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, state: Any) -> Any:
        state *= 0.5
        state += self.conv(state)
        return F.relu(state)


class Numbering(nn.Module):
    """Draws numbers that are not PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.numbers = nn.Conv2d(3, 3, 1), [0]

    def forward(self, x: Any) -> Any:
        NUMBERS[0] += 1
        return self.conv(x) + NUMBERS[0]


NUMBERS = [0]


class Splitting(nn.Module):
    """Returns parts of one tensor that share memory with what it is given, or with each other."""

    def __init__(self, part: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.conv, self.part = nn.Conv2d(3, 3, 1), part

    def forward(self, x: Any) -> Any:
        return self.part(x, self.conv(x))


def test_code_that_writes_is_the_models() -> None:
    model, data = Counting(), torch.randn(1, 3, 5, 4)
    fast, report = optimized(copy.deepcopy(model), data)
    plain = copy.deepcopy(model)
    begun = tvmconv.torch.optimize(model.eval(), data, progress=None)  # begins where the model stands
    for _ in range(3):
        assert_near(begun(data), plain(data), summed=SUMMED, layers=4)
    assert len(begun.kept) == 3 and not model.kept
    assert {row.layer for row in report} == {"conv"}
    assert "its code writes to " in report.refused[""]
    with put_back(fast) as written:
        fast(data)
    assert {"calls", "plain", "kept", "last"} <= set(written) and len(fast.kept) == 2


def test_what_is_kept_for_a_shape_is_kept() -> None:
    fast, report = optimized(Caching(), torch.randn(1, 3, 5, 4))
    assert report.refused == {} and fast.grid.shape == (4,)
    with pytest.warns(tvmconv.errors.TvmconvWarning):
        fast(torch.randn(1, 3, 5, 6))


def test_what_is_given_is_left_as_the_model_leaves_it() -> None:
    model, data = Accumulating().eval(), torch.randn(1, 3, 4, 4)
    fast = tvmconv.torch.optimize(model, data, progress=None)
    states = [data.clone(), data.clone()]
    for _ in range(3):
        assert_near(fast(states[0]), model(states[1]), summed=SUMMED, layers=4)
        assert_near(*states, summed=SUMMED, layers=4)
    assert "the model changes" in tvmconv.torch.report(fast).refused[""]


def test_answers_that_networks_would_not_give_are_the_models() -> None:
    model, data = Numbering().eval(), torch.randn(1, 3, 4, 4)
    fast = tvmconv.torch.optimize(model, data, progress=None)
    NUMBERS[0] = 0
    first = fast(data)
    assert_near(fast(data), first + 1, summed=SUMMED)
    assert "its networks and PyTorch differ" in tvmconv.torch.report(fast).refused[""]


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        (lambda x, y: (x, y), True),
        (lambda x, y: tuple(y.chunk(3, 1)), True),
        (lambda x, y: (y, x, y, y), True),
        (lambda x, y: (x[:, :2], y), False),
        (lambda x, y: (y, y.flatten(1)), True),
        (lambda x, y: (y[:, :2], y[:, 1:]), False),
    ],
)
def test_what_works_in_place_on_answers(part: Any, whole: bool) -> None:
    model, data = Splitting(part).eval(), torch.randn(1, 3, 4, 4)
    fast, report = optimized(model, data)
    assert (report.refused == {}) == whole
    given = [data.clone(), data.clone()]
    answers = [each(one) for each, one in zip((fast, model), given, strict=True)]
    for answer in answers:
        answer[0].zero_()
    assert_near(*answers, summed=SUMMED)
    assert_near(*given, summed=SUMMED)


class Several(nn.Module):
    """Takes and gives structures, and decides by what is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3, 3, 1) for _ in range(2))

    def forward(self, maps: Any, mode: str = "relu", scale: float = 1.0, names: Any = None) -> Any:
        made = [getattr(F, mode)(conv(each)) for conv, each in zip(self.convs, maps, strict=True)]
        return {"sum": [made[0] * scale + made[1]], "nothing": None, "number": 3}


def test_arguments_and_answers_that_are_structures() -> None:
    model, data = Several().eval(), [torch.randn(1, 3, 5, 4) for _ in range(2)]
    examples = [(data,), {"maps": data, "mode": "silu"}, (data, "relu", 2.0)]
    fast = tvmconv.torch.optimize(model, examples, progress=None)
    for args, kwargs in [((data,), {}), ((), {"mode": "silu", "maps": data}), ((data, "relu", 2.0), {})]:
        assert_near(fast(*args, **kwargs), model(*args, **kwargs), summed=SUMMED, layers=3)
    report = tvmconv.torch.report(fast)
    assert report.calls == {} and report.refused == {}
    with pytest.warns(tvmconv.errors.TvmconvWarning, match="'relu', 3.0"):
        assert_near(fast(data, "relu", 3.0), model(data, "relu", 3.0), summed=SUMMED, layers=3)
    with pytest.warns(tvmconv.errors.TvmconvWarning, match="True"):  # is not 1.0
        assert_near(fast(data, "relu", True), model(data, "relu", True), summed=SUMMED, layers=3)


@dataclass
class Answer:
    """What some models return."""

    image: Any
    number: int = 3


class Answering(nn.Module):
    """Returns an object of a class of its own, around a block with a hook and one without."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU()) for _ in range(2))
        self.twice = self.blocks[1]

    def forward(self, x: Any) -> Any:
        return Answer(self.twice(self.blocks[1](self.blocks[0](x))))


def test_objects_hooks_and_modules_in_several_places() -> None:
    model, data, called = Answering().eval(), torch.randn(1, 3, 4, 4), []
    model.blocks[0].register_forward_hook(lambda *_: called.append(1))
    fast = tvmconv.torch.optimize(model, data, progress=None)
    assert fast.twice is fast.blocks[1]
    called.clear()
    assert_near(fast(data).image, model(data).image, summed=SUMMED, layers=3)
    report = tvmconv.torch.report(fast)
    assert called == [1, 1] and report.calls == {}
    hooked = "a hook looks at {}, which a network would not call"
    assert report.refused == {"": hooked.format("blocks.0"), "blocks.0": hooked.format("it")}
    assert {row.layer for row in report} == {"blocks.0.0", "twice.0", "twice.1"}


def test_hooks_that_the_models_own_package_puts_there(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[Any] = []

    class Collecting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)
            self.conv.register_forward_hook(lambda module, given, answer: collected.append(answer))

        def forward(self, x: Any) -> Any:
            self.conv(x)
            return collected.pop() * 2

    monkeypatch.setattr(
        "tvmconv.torch.replacing.packages_distributions", lambda: {__name__.partition(".")[0]: ["installed"]}
    )
    model, data = Collecting().eval(), torch.randn(1, 3, 4, 4)
    fast = tvmconv.torch.optimize(model, data, progress=None)
    assert tvmconv.torch.report(fast).refused == {} and len(tvmconv.torch.networks(fast)) == 1
    assert_near(fast(data), model(data), summed=SUMMED)


def test_a_model_that_cannot_be_copied() -> None:
    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.seen = nn.Conv2d(3, 4, 1), []
            self.conv.register_forward_hook(lambda module, given, answer: self.seen.append(answer))

        def forward(self, x: Any) -> Any:
            self.conv(x)
            return self.seen.pop()

    with pytest.raises(InputError, match=r"a copy of the model .* fails where the model does not, IndexError"):
        tvmconv.torch.optimize(Watched().eval(), torch.randn(1, 3, 4, 4))


class Random(nn.Module):
    """Draws random numbers, and works on a tensor of its own in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dropout = nn.Conv2d(3, 4, 1), nn.Dropout()

    def forward(self, x: Any) -> Any:
        y = self.dropout(self.conv(x + torch.randn(1, 3, 4, 4)))
        y[:, :2] = 0
        return F.relu(y, inplace=True)


@pytest.mark.parametrize("dropout", [False, True])
def test_random_numbers_stay_random(dropout: bool) -> None:
    model, data = Random().eval(), torch.randn(1, 3, 4, 4)
    model.dropout.train(dropout)
    fast = tvmconv.torch.optimize(model, data, progress=None)
    torch.manual_seed(0)
    answers = [fast(data), fast(data)]
    torch.manual_seed(0)
    assert_near(answers[0], model(data), summed=SUMMED)
    assert not torch.equal(*answers)
    assert tvmconv.torch.report(fast).refused == {}


def test_the_line_that_ended_an_export() -> None:
    class Deciding(nn.Module):
        def forward(self, data: Any) -> Any:
            return data if data.sum() > 0 else -data

    with pytest.raises(
        SourceError, match=r"test_torch_models\.py\", line \d+, in forward, return data if data\.sum\(\) > 0"
    ):
        export(Flat(Deciding().eval(), (torch.rand(2),), {}))


class Cancelling(nn.Module):
    """Two layers that almost cancel: of bf16 little is left, in f32."""

    def __init__(self, wide: bool) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(32, 32), nn.Linear(32, 32)
        self.other.weight.data, self.other.bias.data = self.one.weight.data * 1.02, self.one.bias.data
        self.wide = wide

    def forward(self, x: Any) -> Any:
        if self.wide:
            return self.one(x).tanh().float()
        return self.one(x) - self.other(x)


@pytest.mark.parametrize("wide", [False, True])
def test_what_bf16_rounds_is_judged_by_what_pytorch_loses(wide: bool) -> None:
    torch.manual_seed(0)
    model, data = Cancelling(wide).eval(), torch.randn(4, 32)
    fast = tvmconv.torch.optimize(model, data, dtype=torch.bfloat16, progress=None)
    report = tvmconv.torch.report(fast)
    assert not report.refused and not report.calls
    theirs = copy.deepcopy(model).bfloat16()(data.bfloat16())
    answer, right = fast(data.bfloat16()), model(data)
    assert answer.dtype == theirs.dtype
    assert (answer - right).norm() < 2 * (theirs - right).norm() + 0.05 * right.norm()
