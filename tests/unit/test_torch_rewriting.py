"""How graphs of PyTorch models are found and compared with the models, without a kernel."""

from __future__ import annotations

import copy
import pickle
import sys
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import InputError, TvmconvWarning  # noqa: E402
from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.planned import with_plans  # noqa: E402
from tvmconv.torch.rewriting import rewrite  # noqa: E402

CALLS: list[int] = []


@dataclass
class Answer:
    """What some models return."""

    image: Any
    number: int = 3


class Model(nn.Module):
    """A convolution and its ReLU, and what a function makes of them."""

    def __init__(self, finish: Any) -> None:
        super().__init__()
        self.conv, self.finish = nn.Conv2d(3, 4, 1), finish

    def forward(self, x: Any) -> Any:
        return self.finish(F.relu(self.conv(x)))


class Noisy(nn.Module):
    """Adds random numbers whose shape is fixed, which torch.fx takes for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: Any) -> Any:
        return self.conv(x + torch.randn(1, 3, 4, 4))


class Streaming(nn.Module):
    """Remembers the end of what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.end = nn.Conv1d(3, 4, 3), torch.zeros(1, 3, 2)

    def forward(self, x: Any) -> Any:
        x = torch.cat([self.end, x], -1)
        self.end = x[..., -2:]
        return F.relu(self.conv(x))


class Blocks(nn.Module):
    """Blocks in a model that torch.fx cannot trace."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Any) -> Any:
        CALLS.append(1)
        for block in self.blocks:
            x = block(x) if x.isfinite().all() else x
        return x


def block() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())


def rewritten(model: nn.Module, data: Any) -> nn.Module:
    with torch.no_grad():
        return with_plans(rewrite(model.eval(), [((data,), {})], Notice(silent=True)))


def computes(model: nn.Module) -> list[str]:
    return [row.computes for row in tvmconv.torch.report(model)]


def test_random_numbers_stay_random() -> None:
    model, data = Noisy(), torch.randn(1, 3, 4, 4)
    torch.manual_seed(0)  # as each run that answers are compared in
    fast = rewritten(model, data)
    assert not torch.equal(fast(data), fast(data))


def test_what_a_model_remembers() -> None:
    """No graph is taken, which would remember what was traced; and the model itself remembers nothing of it."""
    torch.manual_seed(0)
    model = Streaming().eval()
    fast = rewritten(model, torch.randn(1, 3, 8))
    assert torch.equal(model.end, torch.zeros(1, 3, 2))
    model.end = fast.end.clone()
    with torch.no_grad():
        for data in torch.randn(3, 1, 3, 8):
            torch.testing.assert_close(fast(data), model(data))


@pytest.mark.parametrize(
    "finish",
    [
        lambda y: y.masked_fill(y > 0.1, float("-inf")),
        lambda y: y / 0,
        lambda y: Answer(y),
        lambda y: {"image": [y], "nothing": None},
    ],
)
def test_any_answer_is_compared(finish: Any) -> None:
    torch.manual_seed(0)
    assert computes(rewritten(Model(finish), torch.randn(1, 3, 4, 4))) == ["conv2d-relu"]


def test_one_module_in_several_places() -> None:
    torch.manual_seed(0)
    shared, last = block(), nn.Conv2d(3, 3, 1)
    model, data = Blocks(shared, shared, last, last), torch.randn(1, 3, 4, 4)
    fast = rewritten(model, data)
    assert computes(fast) == ["conv2d-relu", "conv2d"]
    assert not any(isinstance(module, nn.Conv2d) for module in fast.modules())
    assert fast.blocks[0] is fast.blocks[1] and fast.blocks[2] is fast.blocks[3]
    with torch.no_grad():
        torch.testing.assert_close(fast(data), model(data))


def test_blocks_are_found_in_one_run() -> None:
    """Not in one for each block: a model of hundreds would run for hours."""
    torch.manual_seed(0)
    model = Blocks(*(block() for _ in range(20)))
    CALLS.clear()
    fast = rewritten(model, torch.randn(1, 3, 4, 4))
    assert computes(fast) == ["conv2d-relu"] * 20
    assert len(CALLS) < 10


@pytest.mark.parametrize(
    "finish",
    [
        lambda y: y * torch.arange(4)[:, None, None],
        lambda y: y + torch.exp(torch.linspace(0, 1, 4)) * torch.tensor(0.5),
        lambda y: add_a_border(y),
    ],
)
def test_tensors_that_a_model_makes_are_constants(finish: Any) -> None:
    """Which its state has none of, nor that of a copy."""
    torch.manual_seed(0)
    fast = rewritten(Model(finish), torch.randn(1, 3, 4, 4))
    assert computes(fast) == ["conv2d-relu"]
    for each in (fast, copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert set(each.state_dict()) == {"conv.weight", "conv.bias"}


def add_a_border(y: Any) -> Any:
    border = torch.zeros(4, 4)
    border[0] = 1
    return y + border


def add_to_zeros(y: Any) -> Any:
    total = torch.zeros(1, 4, 4, 4)
    total += y
    return total


@pytest.mark.parametrize("finish", [add_to_zeros, lambda y: (y, torch.arange(3)), lambda y: (y, torch.eye(2).mT)])
def test_tensors_that_somebody_may_write_to_are_made_in_each_call(finish: Any) -> None:
    torch.manual_seed(0)
    model, data = Model(finish).eval(), torch.randn(1, 3, 4, 4)
    fast = rewritten(model, data)
    assert computes(fast) == ["conv2d"]
    with torch.no_grad():
        for given, expected in zip((fast(data), fast(data)), (model(data), model(data)), strict=True):
            torch.testing.assert_close(given, expected)


def test_a_graph_refuses_the_way_that_it_does_not_know() -> None:
    """Else it might give another answer: here a mask that is left out asks for another step."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: Any, mask: Any = None) -> Any:
            x = self.conv(x) if mask is not None else self.conv(-x)
            return F.relu(F.batch_norm(x, torch.zeros(4), torch.ones(4), mask))

    torch.manual_seed(0)
    model, data, mask = Masked().eval(), torch.randn(1, 3, 4, 4), torch.rand(4)
    with torch.no_grad():
        fast = with_plans(rewrite(model, [((data, mask), {})], Notice(silent=True)))
        for copied in (fast, copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
            torch.testing.assert_close(copied(data, mask=mask), model(data, mask))
            with pytest.raises(InputError, match="mask is None, and was a tensor in the example"):
                copied(data)
        both = with_plans(rewrite(model, [((data, mask), {}), ((data,), {})], Notice(silent=True)))
        torch.testing.assert_close(both(data), model(data))


def test_layers_say_what_the_modules_said() -> None:
    """A model's code may ask its convolutions for their channels, strides and the like."""

    class Checked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.up = nn.Conv2d(3, 4, 3, 2, padding=1), nn.ConvTranspose2d(4, 3, 2, 2)
            self.linear = nn.Linear(3, 5)

        def forward(self, x: Any) -> Any:
            if x.shape[1] != self.conv.in_channels:
                raise ValueError(f"give {self.conv.in_channels} channels")
            x = F.pad(self.conv(x), (self.conv.padding[0],) * 4)
            x = self.up(x) * self.up.kernel_size[0] * self.conv.stride[1] * self.up.output_padding[0]
            return self.linear(x.mean((2, 3))) * self.linear.in_features

    torch.manual_seed(0)
    model, data = Checked().eval(), torch.randn(1, 3, 8, 8)
    fast = rewritten(model, data)
    assert computes(fast) == ["conv2d", "conv_transpose2d", "linear", "mean", "mean"]
    with torch.no_grad():
        torch.testing.assert_close(fast(data), model(data))
        with pytest.raises(ValueError, match="give 3 channels"):
            fast(data[:, :2])


@pytest.mark.parametrize(
    "finish", [lambda y: torch.fft.rfft(y), lambda y: torch.view_as_complex(y[..., :2].contiguous())]
)
def test_complex_numbers_are_compared(finish: Any) -> None:
    torch.manual_seed(0)
    data = torch.randn(1, 3, 4, 4)
    assert computes(rewritten(Model(finish), data)) == ["conv2d-relu"]
    drawn = iter(range(100))
    with pytest.warns(TvmconvWarning, match="another answer to the example than the model"):
        rewritten(Model(lambda y: finish(y) + next(drawn)), data)


class Accumulating(nn.Module):
    """Adds to what it is given, as many a decoder does to its state."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, state: Any) -> Any:
        state *= 0.5
        state += self.conv(state)
        return F.relu(state)


@pytest.mark.parametrize("model", [Accumulating(), Blocks(Accumulating())], ids=["whole", "block"])
def test_what_a_model_is_given_is_left_as_it_leaves_it(model: nn.Module) -> None:
    torch.manual_seed(0)
    data = torch.randn(1, 3, 4, 4)
    fast = rewritten(model, data)
    states = [data.clone(), data.clone()]
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(states[0]), model(states[1]))
            torch.testing.assert_close(*states)


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
        rewritten(Watched(), torch.randn(1, 3, 4, 4))


@pytest.mark.parametrize("given", [None, [1.0], "an image"])
def test_what_is_no_tensor(given: Any) -> None:
    fast = rewritten(Model(lambda y: y), torch.randn(1, 3, 4, 4))
    with pytest.raises(InputError, match=f"the input is a {type(given).__name__}; give a torch.Tensor"):
        fast(given)


def test_answers_that_no_copy_gives_are_told_of() -> None:
    """As those of a model that draws random numbers which are not PyTorch's."""
    numbers = iter(range(100))
    with pytest.warns(TvmconvWarning, match="another answer to the example than the model"):
        rewritten(Model(lambda y: y + next(numbers)), torch.randn(1, 3, 4, 4))


def test_the_report_says_what_is_no_graph_and_why() -> None:
    report = tvmconv.torch.report(rewritten(Blocks(block(), Noisy()), torch.randn(1, 3, 4, 4)))
    assert list(report.graphless) == ["", "blocks.1"]
    assert "no graph of the model: TraceError: the code decides by a value that is computed" in str(report)
    assert str(report).endswith(
        "no graph of blocks.1: its graph gives another answer, or leaves what it is given otherwise"
    )


def test_a_block_that_is_called_in_two_ways_is_no_graph() -> None:
    class Optional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)

        def forward(self, x: Any, more: Any = None) -> Any:
            return F.relu(self.conv(x)) if more is None else F.relu(self.conv(x) + more)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Optional()

        def forward(self, x: Any) -> Any:
            return self.block(self.block(x, x)) if x.isfinite().all() else x

    torch.manual_seed(0)
    model, data = Twice().eval(), torch.randn(1, 3, 4, 4)
    fast = rewritten(model, data)
    assert computes(fast) == ["conv2d"]
    with torch.no_grad():
        torch.testing.assert_close(fast(data), model(data))


def test_a_graph_that_fails_does_not_import_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which torch.fx does for its traceback, in seconds."""

    class Optional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: Any, more: Any = None) -> Any:
            return self.conv(x) if more is None else self.conv(x) + more

    monkeypatch.delitem(sys.modules, "torch._inductor", raising=False)
    rewritten(copy.deepcopy(Optional()), torch.randn(1, 3, 4, 4))
    assert "torch._inductor" not in sys.modules


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (nn.Sequential(block(), block()), ""),
        (nn.Sequential(block(), block()), "0"),
        (Blocks(block(), block()), ""),
        (Blocks(block(), block()), "blocks.0"),
    ],
)
def test_hooks_are_called(model: nn.Module, path: str) -> None:
    """A graph of what they look at would not call them."""
    called: list[Any] = []
    model.get_submodule(path).register_forward_hook(lambda *_: called.append(1))
    fast = rewritten(model, torch.randn(1, 3, 4, 4))
    assert len(computes(fast)) == 2
    called.clear()
    fast(torch.randn(1, 3, 4, 4))
    assert called == [1]
