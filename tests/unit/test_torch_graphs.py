"""What models' code does that graphs follow: arguments that are not given, tensors made of sizes, norms with checks."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import InputError  # noqa: E402
from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.planned import PlannedGraph, with_plans  # noqa: E402
from tvmconv.torch.rewriting import Arguments, rewrite  # noqa: E402
from tvmconv.torch.segments import segments  # noqa: E402


def rewritten(model: nn.Module, *examples: Any) -> nn.Module:
    """Return the model rewritten, which gives its answers to the examples."""
    given: list[Arguments] = [(each if isinstance(each, tuple) else (each,), {}) for each in examples]
    with torch.no_grad():
        fast = with_plans(rewrite(model.eval(), given, Notice(silent=True)))
        for args, _ in (*given, *given):
            torch.testing.assert_close(fast(*args), model(*args), rtol=1e-5, atol=1e-6)
    return fast


def computes(fast: nn.Module) -> list[str]:
    return [row.computes for row in tvmconv.torch.report(fast)]


def graphless(fast: nn.Module) -> dict[str, str]:
    return tvmconv.torch.report(fast).graphless


class NormAct(nn.BatchNorm2d):
    """A norm with its activation, as timm's: it checks the number of axes, and calls the function."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.drop, self.act = nn.Identity(), nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        torch._assert(x.ndim == 4, f"expected 4D input (got {x.ndim}D input)")
        training = self.training or (self.running_mean is None and self.running_var is None)
        y = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, training, 0.1, self.eps)
        return self.act(self.drop(y))


def normed(channels: int = 4) -> nn.Module:
    """Return a convolution with such a norm."""
    norm = NormAct(channels)
    with torch.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        norm.bias.normal_()
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1, bias=False), norm)


def test_norms_that_are_called_as_functions_are_folded() -> None:
    torch.manual_seed(0)
    fast = rewritten(nn.Sequential(normed(), nn.Conv2d(4, 3, 1), normed()), torch.randn(2, 3, 5, 4))
    assert computes(fast) == ["conv2d-relu", "conv2d", "conv2d-relu"]
    (segment,) = segments(fast.graph, dict(fast.named_modules()))
    assert set(fast.graph.nodes) - set(segment.nodes) == {*list(fast.graph.nodes)[:1], *list(fast.graph.nodes)[-1:]}
    with pytest.raises(AssertionError, match="expected 4D input"), torch.no_grad():
        fast(torch.randn(3, 5, 4))


@pytest.mark.parametrize(
    "norm",
    [
        lambda m, y: F.batch_norm(y, m.norm.running_mean, m.norm.running_var, training=True),
        lambda m, y: F.batch_norm(y, None, None, m.norm.weight, training=True),
        lambda m, y: F.batch_norm(y, y.mean((0, 2, 3)), m.norm.running_var),
        lambda m, y: F.batch_norm(m.other, m.norm.running_mean, m.norm.running_var, y[0, :, 0, 0]),
    ],
)
def test_other_norms_are_not(norm: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.other = (
                nn.Conv2d(3, 4, 1),
                nn.BatchNorm2d(4),
                nn.Parameter(torch.rand(1, 4, 2, 2)),
            )

        def forward(self, x: Any) -> Any:
            return F.relu(norm(self, self.conv(x)))

    torch.manual_seed(0)
    assert computes(rewritten(Model(), torch.randn(2, 3, 5, 4))) == ["conv2d"]


class Block(nn.Module):
    """A residual block that a function is part of."""

    def __init__(self, finish: Callable[..., Any] = lambda y: y) -> None:
        super().__init__()
        self.conv, self.last, self.finish = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1), [finish]

    def forward(self, x: Any, added: Any = None, activate: bool = True, mode: str = "relu") -> Any:
        y = self.conv(x)
        if activate:
            y = F.relu(y) if mode == "relu" else F.silu(y)
        if added is not None:
            y = y + added
        return self.last(self.finish[0](y))


@pytest.mark.parametrize(
    ("given", "expected", "other", "error"),
    [
        ((), "conv2d-relu", (0.5,), "added is no tensor, and was None"),
        ((None, False), "conv2d", (None, True), "activate is True, and was False"),
        ((None, True, "silu"), "conv2d-silu", (), "mode is 'relu', and was 'silu'"),
    ],
)
def test_a_graph_is_for_the_examples_optional_arguments(
    given: tuple[Any, ...], expected: str, other: tuple[Any, ...], error: str
) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, 4)
    fast = rewritten(Block(), (x, *given))
    assert computes(fast) == [expected, "conv2d"] and not graphless(fast)
    for copied in (fast, copy.deepcopy(fast), pickle.loads(pickle.dumps(fast.to(torch.float32)))):
        with torch.no_grad(), pytest.raises(InputError, match=error):
            copied(x, *other)


class Neck(nn.Module):
    """Takes several maps, as feature pyramids do."""

    def __init__(self, write: bool = False) -> None:
        super().__init__()
        self.convs, self.write = nn.ModuleList(nn.Conv2d(3, 3, 1) for _ in range(2)), write

    def forward(self, maps: Any) -> Any:
        names = list(maps) if isinstance(maps, dict) else range(len(maps))
        made = [F.relu(conv(maps[name])) for conv, name in zip(self.convs, names, strict=True)]
        if self.write:
            maps[0] = made[0]
        return [made[0] + made[1], *(maps if self.write else ())]


class Pyramid(nn.Module):
    """Gives them to it."""

    def __init__(self, neck: nn.Module, kind: Any) -> None:
        super().__init__()
        self.stem, self.neck, self.kind = nn.Conv2d(3, 3, 1), neck, [kind]

    def forward(self, x: Any) -> Any:
        x = F.relu(self.stem(x)) if x.shape[2] > 1 else x
        return self.neck(self.kind[0]([x, x * 2]))


@pytest.mark.parametrize("kind", [list, tuple, lambda maps: dict(zip("ab", maps, strict=True))])
def test_modules_that_take_several_tensors_are_graphs(kind: Any) -> None:
    torch.manual_seed(0)
    fast = rewritten(Pyramid(Neck(), kind), torch.randn(2, 3, 5, 4))
    assert list(graphless(fast)) == [""] and sorted(computes(fast)) == ["conv2d", "conv2d-relu", "conv2d-relu-add"]


def test_a_list_that_is_written_to_is_left_to_the_code() -> None:
    torch.manual_seed(0)
    fast = rewritten(Pyramid(Neck(write=True), list), torch.randn(2, 3, 5, 4))
    assert "writes to a list" in graphless(fast)["neck"]


class Undecided(Neck):
    """Decides by sizes, too."""

    def forward(self, maps: Any) -> Any:
        maps[0] = maps[0] if maps[0].shape[2] % 2 else maps[0] * 2
        return super().forward(maps)


class Around(nn.Module):
    """Is a graph around that."""

    def __init__(self, neck: nn.Module) -> None:
        super().__init__()
        self.stem, self.neck = nn.Conv2d(3, 3, 1), neck

    def forward(self, x: Any) -> Any:
        x = F.relu(self.stem(x))
        return self.neck([x, x * 2])


def test_a_graph_gives_a_module_a_list_that_it_may_write_to() -> None:
    torch.manual_seed(0)
    data = torch.randn(2, 3, 5, 4)
    fast = rewritten(Around(Undecided()), data)
    assert list(graphless(fast)) == ["neck"]
    with torch.no_grad():
        exported = torch.export.export(copy.deepcopy(fast), (data,), strict=False).module()
        torch.testing.assert_close(exported(data), fast(data))


def test_what_is_made_of_sizes_is_saved() -> None:
    torch.manual_seed(0)
    model = Block(lambda y: y + torch.zeros(max(int(y.shape[0] / 1), 1), 1, 1, min(1, y.shape[3])))
    fast, data = rewritten(model, torch.randn(2, 3, 5, 4)), torch.randn(1, 3, 5, 3)
    with torch.no_grad():
        torch.testing.assert_close(pickle.loads(pickle.dumps(fast.to(torch.float32)))(data), model(data))


def test_a_list_of_images_may_have_any_length() -> None:
    torch.manual_seed(0)
    images = nn.ModuleList([nn.Conv2d(3, 4, 1)])

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convs = images

        def forward(self, given: Any) -> Any:
            return [F.relu(self.convs[0](image)) for image in given]

    model, data = Model(), [torch.randn(1, 3, 4, 4) for _ in range(3)]
    fast = rewritten(model, (data[:2],))
    with torch.no_grad():
        torch.testing.assert_close(fast(data), model(data))


def writes_to_a_part(y: Any) -> Any:
    y[:, :2] = 0
    return y


@pytest.mark.parametrize(
    "finish",
    [
        writes_to_a_part,
        lambda y: y + torch.zeros(y.shape[0], 3, *y.shape[2:], dtype=y.dtype, device=y.device),
        lambda y: y + torch.arange(y.shape[3]),
        lambda y: y + torch.full((y.size(0), 1, 1, 1), 2.0),
        lambda y: F.pad(y, (0, max(2 - y.shape[3] % 2, 0), 0, min(y.shape[2], 1))),
        lambda y: F.interpolate(y, size=(round(y.shape[2] * 1.5), 7)),
        lambda y: y.view(int(y.shape[0] * 2 / 2), 3, -1).reshape(y.shape) + isinstance(3, int) + int("2"),
    ],
)
def test_what_is_made_of_sizes(finish: Any) -> None:
    torch.manual_seed(0)
    model = Block(finish)
    fast = rewritten(model, torch.randn(2, 3, 5, 4))
    assert not graphless(fast)
    with torch.no_grad():
        for shape in ((1, 3, 4, 5), (3, 3, 2, 3)):
            data = torch.randn(shape)
            torch.testing.assert_close(fast(data), model(data), rtol=1e-5, atol=1e-6)


class OfTokens(nn.Module):
    """Is given the height and the width of its tokens, which it checks, as vision transformers' blocks do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: Any, size: Any) -> Any:
        assert x.shape[1] == size[0] * size[1]
        y = x.transpose(1, 2).reshape(x.shape[0], -1, *size)
        return F.relu(self.conv(y)) + int(math.sqrt(size[0]))


class Tokens(nn.Module):
    """Gives them to it."""

    def __init__(self) -> None:
        super().__init__()
        self.block = OfTokens()

    def forward(self, x: Any) -> Any:
        x = x if x.shape[2] > 1 else x * 2
        return self.block(x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3]))


def test_sizes_that_a_module_is_given() -> None:
    torch.manual_seed(0)
    model = Tokens()
    fast = rewritten(model, torch.randn(2, 3, 5, 4))
    assert list(graphless(fast)) == [""] and computes(fast) == ["conv2d-relu"]
    with torch.no_grad():
        data = torch.randn(1, 3, 9, 7)
        torch.testing.assert_close(fast(data), model(data), rtol=1e-5, atol=1e-6)


def test_tracing_leaves_functions_as_they_are() -> None:
    before = (max, min, int, torch.zeros)
    rewritten(Block(lambda y: y + torch.zeros(max(int(y.shape[0] / 1), 1), 1, 1, 1)), torch.randn(2, 3, 5, 4))
    assert before == (max, min, int, torch.zeros) and "int" not in globals()


def pads_odd_widths(y: Any) -> Any:
    return F.pad(y, (0, 1)) if y.shape[3] % 2 else y


def test_a_module_that_is_no_graph_is_called_by_the_graph_around_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(normed(3), Block(pads_odd_widths), Block(pads_odd_widths), nn.Conv2d(3, 3, 1), nn.ReLU())
    fast = rewritten(model, torch.randn(2, 3, 5, 4))
    assert isinstance(fast, PlannedGraph) and list(graphless(fast)) == ["1", "2"]
    assert computes(fast) == ["conv2d-relu", *["conv2d"] * 4, "conv2d-relu"]
    with torch.no_grad():
        for copied in (fast, copy.deepcopy(fast)):
            data = torch.randn(1, 3, 4, 5)
            torch.testing.assert_close(copied(data), model(data), rtol=1e-5, atol=1e-6)


class Windows(nn.Module):
    """Asks a module within for its window, as EfficientViT's attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.block.window, self.block.names, self.depth = (2, 3), ["a"], 3

    def forward(self, x: Any) -> Any:
        x = x if x.shape[2] > 1 else x * 2
        return self.block(x[:, :, : self.block.window[0]])


def test_graphs_have_the_numbers_and_texts_of_their_modules() -> None:
    torch.manual_seed(0)
    fast = rewritten(Windows(), torch.randn(2, 3, 5, 4))
    assert list(graphless(fast)) == [""]
    for graph in (fast.block, copy.deepcopy(fast.block), pickle.loads(pickle.dumps(fast.block.to(torch.float32)))):
        assert graph.window == (2, 3) and graph.names == ["a"] and not graph.training


class Sharing(nn.Module):
    """Calls a convolution that a module within, which is no graph, calls too; its norm must not be folded."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.norm = Block(pads_odd_widths), nn.BatchNorm2d(3)
        self.norm.running_var.fill_(4)

    def forward(self, x: Any) -> Any:
        return self.block(self.norm(self.block.conv(x)))


def test_a_convolution_that_such_a_module_calls_too_keeps_its_weights() -> None:
    torch.manual_seed(0)
    rewritten(Sharing(), torch.randn(2, 3, 5, 4))


def test_what_works_in_place_on_a_view_of_its_own_is_planned() -> None:
    torch.manual_seed(0)
    model = Block(lambda y: F.relu(F.layer_norm(y.permute(0, 2, 3, 1), (3,)).permute(0, 3, 1, 2), inplace=True))
    fast = rewritten(model, torch.randn(2, 3, 5, 4))
    assert len(segments(fast.graph, dict(fast.named_modules()))) == 1
