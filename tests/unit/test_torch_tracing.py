"""Graphs of PyTorch models whose code asks for shapes and decides by them."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import InputError  # noqa: E402
from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.planned import with_plans  # noqa: E402
from tvmconv.torch.rewriting import rewrite  # noqa: E402
from tvmconv.torch.segments import segments  # noqa: E402


class Model(nn.Module):
    """Something that looks at its input, and then a convolution, a BatchNorm and a ReLU."""

    def __init__(self, look: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.look = [look]

    def forward(self, x: Any) -> Any:
        return F.relu(self.norm(self.conv(self.look[0](self, x))))


def rewritten(model: nn.Module, *examples: Any) -> nn.Module:
    """Return the model rewritten, which gives its answers to the examples."""
    with torch.no_grad():
        fast = with_plans(rewrite(model, [((example,), {}) for example in examples], Notice(silent=True)))
        for example in (*examples, *examples):
            torch.testing.assert_close(fast(example), model(example), rtol=1e-5, atol=1e-6)
    return fast


def computes(fast: nn.Module) -> list[str]:
    return [row.computes for row in tvmconv.torch.report(fast)]


def images(m: Any, x: Any) -> Any:
    return x.unsqueeze(0) if x.dim() == 3 else x


def images_by_length(m: Any, x: Any) -> Any:
    return x.unsqueeze(0) if len(x.shape) < 4 or len(x.size()) < 4 else x


def asserts(m: Any, x: Any) -> Any:
    assert x.ndim == 4, f"{x.shape}"
    y = m.conv(x)
    assert y.shape[-1] % 2 == 0
    assert y.size() == x.shape
    return y


def raises(m: Any, x: Any) -> Any:
    if x.size(1) != m.conv.in_channels or x.shape[2] < 2:
        raise ValueError("give three channels")
    return x


def iterates(m: Any, x: Any) -> Any:
    """As Res2Net iterates over channels."""
    y = m.conv(torch.cat([part * 2 for part in m.conv(x).chunk(3, 1)], 1))
    return torch.cat([*torch.split(y, 2, dim=1)][::-1], 1).roll(1, 1) + sum(x.split([1, 1, 1], 1))


def parts_of_channels(m: Any, x: Any) -> Any:
    first, *others = [*x.split(2, 1)]
    return torch.cat([first, others[-1]], 1)


def iterates_over_rows(m: Any, x: Any) -> Any:
    return torch.cat([part * 2 for part in x.split(2, 2)], 2)


def pads(m: Any, x: Any) -> Any:
    return F.pad(x, (0, 1)) if x.shape[-1] % 2 else x


def pads_and_asserts(m: Any, x: Any) -> Any:
    x = F.pad(x, (0, 1)) if x.shape[-1] % 2 else x
    assert x.shape[-1] % 2 == 0
    return x


def asserts_one_of_two(m: Any, x: Any) -> Any:
    assert x.shape[2] == 6 or x.shape[2] <= 4
    return x


def resizes(m: Any, x: Any) -> Any:
    y = F.avg_pool2d(x, 2) if x.shape[2] > 4 else x
    return F.interpolate(y, size=x.shape[2:]) if x.shape[2:] != y.shape[2:] else y


def repeats(m: Any, x: Any) -> Any:
    for _ in range(x.shape[0]):
        x = x + 1
    return x


def checks_numbers(m: Any, x: Any) -> Any:
    if x.isnan().any() or x.sum().item() == 7:
        raise ValueError("not these")
    return x


def with_inner_modules(m: Any, x: Any) -> Any:
    """Has modules before the condition, which are computed to know it, and not traced again."""
    y = m.norm(m.conv(x))
    return y if y.dim() == 4 else x


def takes_sizes_apart(m: Any, x: Any) -> Any:
    batch, channels, *spatial = x.shape
    assert len(spatial) == len(x.shape[2:]) == 2
    y = m.conv(x.reshape(batch, channels, -1, 1)).view(*x.shape[:2], *spatial)
    return y.reshape(tuple(x.size()))


def decides_by_a_buffer(m: Any, x: Any) -> Any:
    return x * 2 if m.norm.running_var.mean().item() > 0 else x


@pytest.mark.parametrize(
    "look",
    [
        images, images_by_length, asserts, raises, with_inner_modules, iterates, takes_sizes_apart,
        decides_by_a_buffer,
    ],
)  # fmt: skip
def test_decisions_by_axes_and_assertions_are_the_examples(look: Any) -> None:
    torch.manual_seed(0)
    fast = rewritten(Model(look).eval(), torch.randn(2, 3, 6, 4))
    assert not tvmconv.torch.report(fast).graphless


@pytest.mark.parametrize("look", [images, images_by_length])
def test_what_is_fused_after_a_decision(look: Any) -> None:
    torch.manual_seed(0)
    assert computes(rewritten(Model(look).eval(), torch.randn(2, 3, 6, 4))) == ["conv2d-relu"]


@pytest.mark.parametrize(
    "look",
    [pads, pads_and_asserts, asserts_one_of_two, resizes, repeats, checks_numbers, iterates_over_rows],
)
def test_decisions_that_other_inputs_may_take_are_left_to_the_code(look: Any) -> None:
    torch.manual_seed(0)
    model = Model(look).eval()
    fast = rewritten(model, torch.randn(2, 3, 6, 4))
    assert "" in tvmconv.torch.report(fast).graphless
    with torch.no_grad():
        for shape in ((1, 3, 4, 5), (3, 3, 3, 3)):
            data = torch.randn(shape)
            torch.testing.assert_close(fast(data), model(data), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("look", "other", "asked"),
    [
        (images, (3, 6, 4), r"takes another way.*eq\(x.dim\(\), 3\) is True"),
        (images_by_length, (3, 6, 4), r"takes another way.*x.dim\(\) is 3"),
        (asserts, (2, 3, 6, 5), r"AssertionError.*mod"),
        (parts_of_channels, (2, 5, 6, 4), r"x.split\(2, 1\) is 3"),
        (raises, (2, 2, 6, 4), r"ValueError: give three channels .ne\(x.size\(1\), 3\) is True"),
    ],
)
def test_a_graph_refuses_shapes_that_take_another_way(look: Any, other: tuple[int, ...], asked: str) -> None:
    torch.manual_seed(0)
    fast = rewritten(Model(look).eval(), torch.randn(2, 3, 6, 4))
    with torch.no_grad():
        for copied in (fast, copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
            with pytest.raises(InputError, match=asked):
                copied(torch.randn(other))


def test_a_graph_refuses_buffers_that_take_another_way() -> None:
    fast = rewritten(Model(decides_by_a_buffer).eval(), torch.randn(2, 3, 6, 4))
    assert not tvmconv.torch.report(fast).graphless
    with torch.no_grad():
        fast.norm.running_var.neg_()
        with pytest.raises(InputError, match="takes another way"):
            fast(torch.randn(2, 3, 6, 4))


class Parts(nn.Module):
    """What code makes of a Sequential, and an answer with names in an order."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1))

    def forward(self, x: Any) -> Any:
        before = self.layers[:3](x)
        return OrderedDict(out=nn.Softmax(1)(self.layers[3:](before)), aux=before)


def test_parts_of_a_sequential_and_named_answers() -> None:
    torch.manual_seed(0)
    fast = rewritten(Parts().eval(), torch.randn(1, 3, 6, 4))
    assert computes(fast) == ["conv2d-relu", "conv2d"]
    data = torch.randn(1, 3, 6, 4)
    for each in (fast, copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert list(each(data)) == ["out", "aux"] and type(each(data)) is OrderedDict


def test_a_decision_does_not_end_a_plan() -> None:
    torch.manual_seed(0)
    fast = rewritten(
        nn.Sequential(*(Model(look) for look in (images, raises, images_by_length))).eval(), torch.randn(2, 3, 6, 4)
    )
    (segment,) = segments(fast.graph, dict(fast.named_modules()))
    assert len(segment.nodes) == len(fast.graph.nodes) - 2  # all but the argument and the answer


def test_examples_of_each_way_are_left_to_the_code() -> None:
    torch.manual_seed(0)
    fast = rewritten(Model(images).eval(), torch.randn(2, 3, 6, 4), torch.randn(3, 6, 4))
    assert "" in tvmconv.torch.report(fast).graphless
