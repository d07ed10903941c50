"""Subclasses of PyTorch's layers that tvmconv.torch takes for what they compute."""

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
from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.rewriting import rewrite  # noqa: E402


class Same(nn.Conv2d):
    """As EfficientNet's from TensorFlow: it decides by sizes."""

    def forward(self, x: Any) -> Any:
        pads: list[int] = []
        for axis in (1, 0):
            size, stride = x.shape[axis + 2], self.stride[axis]
            span = (self.kernel_size[axis] - 1) * self.dilation[axis] + 1
            total = max((math.ceil(size / stride) - 1) * stride + span - size, 0)
            pads += [total // 2, total - total // 2]
        if sum(pads) > 0:
            x = F.pad(x, pads)
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Before(nn.Conv2d):
    """The odd pad comes first, as PyTorch and TensorFlow do not."""

    def forward(self, x: Any) -> Any:
        pads = [(-x.shape[axis]) % 2 + 1 for axis in (3, 2)]
        x = F.pad(x, [pads[0], 0, pads[1], 0]) if x.shape[2] > 1 else F.pad(x, [1, 1, 1, 1])
        return F.conv2d(x, self.weight, self.bias, self.stride)


class Renamed(nn.Conv2d):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        nn.init.zeros_(self.weight)


class Casting(nn.Linear):
    """As Whisper's."""

    def forward(self, x: Any) -> Any:
        return F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))


class Remembering(nn.Conv2d):
    last: Any = None

    def forward(self, x: Any) -> Any:
        self.last = super().forward(x)
        return self.last


class Standardized(nn.Conv2d):
    def forward(self, x: Any) -> Any:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


class StandardizedSame(Same):
    """As BiT's, with NFNet's gain."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gain = nn.Parameter(torch.rand(self.out_channels, 1, 1, 1))

    def _conv_forward(self, x: Any, weight: Any, bias: Any) -> Any:
        flat = weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(flat, None, None, training=True, momentum=0.0).reshape_as(weight)
        return super()._conv_forward(x, weight * self.gain, bias)


class ByItsInput(nn.Conv2d):
    """Its filter depends on its input."""

    def forward(self, x: Any) -> Any:
        return F.conv2d(x, self.weight * x.mean(), self.bias)


class Untraceable(nn.Module):
    """A layer, its BatchNorm, and code that no graph is made of."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.rest = layer, nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))

    def forward(self, x: Any) -> Any:
        return self.rest(self.layer(x + 1 if x.sum() > 1e9 else x))


def rewritten(model: nn.Module, *examples: Any) -> nn.Module:
    """Return the model rewritten by the first example, which gives its answers to all."""
    with torch.no_grad():
        fast = rewrite(model, [((examples[0],), {})], Notice(silent=True)).requires_grad_(False)
        for example in (*examples, examples[0]):
            torch.testing.assert_close(fast(example), model(example), rtol=1e-5, atol=1e-6)
    return fast


def computes(fast: nn.Module) -> list[str]:
    return list(dict.fromkeys(row.computes for row in tvmconv.torch.report(fast)))


IMAGES = [(1, 4, 8, 8), (2, 4, 9, 7), (1, 4, 1, 2), (1, 4, 12, 5)]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Same(4, 4, 3, 2), "conv2d-relu"),
        (lambda: Same(4, 4, (5, 3), (3, 2), dilation=(1, 2)), "conv2d-relu"),
        (lambda: Same(4, 4, 1, bias=False), "conv2d-relu"),
        (lambda: Same(4, 4, 3, groups=4), "conv2d-relu"),
        (lambda: StandardizedSame(4, 4, 3, 2), "conv2d-relu"),
        (lambda: Renamed(4, 4, 3, 2, 1, padding_mode="reflect"), "conv2d-relu"),
    ],
)
def test_what_is_recognised_is_fused_for_all_sizes(make: Callable[[], nn.Module], expected: str) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    norm.running_mean.normal_()
    shapes = IMAGES[:2] if make().padding_mode == "reflect" else IMAGES
    fast = rewritten(nn.Sequential(make(), norm, nn.ReLU()).eval(), *map(torch.randn, shapes))
    assert computes(fast) == [expected]
    data = torch.randn(1, 4, 9, 9)
    for each in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert torch.equal(each(data), fast(data))


def test_pads_by_size_where_there_is_no_graph() -> None:
    torch.manual_seed(0)
    fast = rewritten(Untraceable(Same(4, 4, 3, 2)).eval(), *map(torch.randn, IMAGES))
    assert isinstance(fast.layer, tvmconv.torch.FusedConvolution)


def test_pads_by_size_in_compiled_code() -> None:
    torch.manual_seed(0)
    fast = rewritten(nn.Sequential(Same(4, 4, 3, 2), nn.ReLU()).eval(), torch.randn(IMAGES[0]))
    compiled = torch.compile(fast, backend="eager", fullgraph=True)
    with torch.no_grad():
        for shape in IMAGES:
            data = torch.randn(shape)
            torch.testing.assert_close(compiled(data), fast(data))


@pytest.mark.parametrize("make", [lambda: Before(4, 4, 3, 2), lambda: Remembering(4, 4, 3)])
def test_what_computes_something_else_is_left_alone(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    fast = rewritten(Untraceable(make()).eval(), *map(torch.randn, IMAGES[:2]))
    (row,) = (row for row in tvmconv.torch.report(fast) if row.layer == "layer")
    assert "is a subclass" in row.why


def test_a_filter_that_depends_on_the_input_is_computed_in_each_call() -> None:
    torch.manual_seed(0)
    fast = rewritten(Untraceable(ByItsInput(4, 4, 3)).eval(), *map(torch.randn, IMAGES[:2]))
    (row,) = (row for row in tvmconv.torch.report(fast) if row.layer == "layer.conv2d")
    assert row.by == "F.conv2d" and "computed in each call" in row.why


def test_a_subclass_has_a_graph_of_its_own_where_there_is_no_other() -> None:
    torch.manual_seed(0)
    fast = rewritten(Untraceable(Standardized(4, 4, 3)).eval(), *map(torch.randn, IMAGES[:2]))
    assert computes(fast) == ["conv2d"] and not [
        row for row in tvmconv.torch.report(fast) if "Standard" in row.computes
    ]


def test_weights_that_are_cast_to_the_inputs_type() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Casting(8, 8), nn.GELU()).eval()
    fast = rewritten(model, torch.randn(3, 8))
    assert computes(fast) == ["linear-gelu"]
    data = torch.randn(3, 8).bfloat16()
    torch.testing.assert_close(fast(data), model(data))
