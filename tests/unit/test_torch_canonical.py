"""Graphs of PyTorch models that spell out what kernels know, or whose weights are made of others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.rewriting import rewrite  # noqa: E402


class Model(nn.Module):
    """A convolution, parameters, and a function of them."""

    def __init__(self, forward: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.a, self.prelu, self.slopes = nn.Conv2d(4, 4, 1), nn.PReLU(init=-0.5), nn.PReLU(4)
        self.filter, self.bias = nn.Parameter(torch.randn(6, 2, 3, 3)), nn.Parameter(torch.randn(6))
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.scale, self.image = nn.Parameter(torch.randn(4, 1, 1)), nn.Parameter(torch.randn(4, 6, 5))
        self.exact = nn.Parameter(torch.rand(4, 1, 1, dtype=torch.float64))
        self.dropout, self.awake = nn.Dropout(0.5), nn.Dropout(1.0)
        self.register_buffer("blur", torch.rand(4, 1, 3, 3))
        self.function = [forward]

    def forward(self, x: Any) -> Any:
        return self.function[0](self, x)


def writes_before_the_product(m: Any, x: Any) -> Any:
    y = m.a(x)
    gate = torch.sigmoid(y)
    y.add_(1)
    return y * gate


def rewritten(model: nn.Module, data: Any) -> nn.Module:
    """Return the model rewritten, which computes the same."""
    with torch.no_grad():
        fast = rewrite(model, [((data,), {})], Notice(silent=True))
        torch.testing.assert_close(fast(data), model(data), rtol=1e-5, atol=1e-6)
    return fast


def computes(fast: nn.Module) -> list[str]:
    """Return what layers compute, but for means."""
    return [row.computes for row in tvmconv.torch.report(fast) if row.computes != "mean"]


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda m, x: x + m.dropout(m.a(x)), ["conv2d-add"]),
        (lambda m, x: F.relu(F.dropout2d(m.a(x), 0.5, m.training)), ["conv2d-relu"]),
        (lambda m, x: x.mean((2, 3)) + F.dropout(m.linear(x.mean((2, 3))), training=False), ["linear-add"]),
        (lambda m, x: x + m.awake(m.a(x)), ["conv2d"]),
        (lambda m, x: x + F.dropout(m.a(x), 1.0), ["conv2d"]),
    ],
)
def test_dropouts_outside_of_training_do_nothing(forward: Any, expected: list[str]) -> None:
    torch.manual_seed(0)
    model = Model(forward).eval()
    model.awake.train()
    assert computes(rewritten(model, torch.randn(2, 4, 6, 5))) == expected


@torch.fx.wrap
def stochastic_depth(input: Any, p: float, mode: str, training: bool = True) -> Any:
    return input * 0 if training else input


stochastic_depth.__module__ = "torchvision.ops.stochastic_depth"


@pytest.mark.parametrize(("training", "expected"), [(False, "conv2d-add"), (True, "conv2d")])
def test_torchvisions_stochastic_depth_does_nothing_outside_of_training(training: bool, expected: str) -> None:
    torch.manual_seed(0)
    model = Model(lambda m, x: x + stochastic_depth(m.a(x), 0.5, "row", training)).eval()
    assert computes(rewritten(model, torch.randn(2, 4, 6, 5))) == [expected]


def writes_before_the_sum(m: Any, x: Any) -> Any:
    y = m.a(x)
    z = 0 + y
    y.add_(1)
    return z + x


def writes_to_the_sum(m: Any, x: Any) -> Any:
    y = m.a(x)
    z = 0 + y
    return (z + x) * z.add_(x) + y


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda m, x: sum([m.a(x), x]), ["conv2d-add"]),
        (lambda m, x: F.relu(sum(y for y in (x, m.a(x)))), ["conv2d-add-relu"]),
        (lambda m, x: sum([m.a(x)]), ["conv2d"]),
        (lambda m, x: (0.0 + m.a(x)) + x, ["conv2d"]),
        (writes_before_the_sum, ["conv2d"]),
        (writes_to_the_sum, ["conv2d"]),
    ],
)
def test_sums_begin_with_nothing(forward: Any, expected: list[str]) -> None:
    torch.manual_seed(0)
    assert computes(rewritten(Model(forward).eval(), torch.randn(2, 4, 6, 5))) == expected


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda m, x: (lambda y: y * torch.sigmoid(y))(m.a(x)), ["conv2d-silu"]),
        (lambda m, x: x + (lambda y: y.sigmoid().mul(y))(m.a(x)), ["conv2d-silu-add"]),
        (lambda m, x: (lambda y: y * F.relu6(y + 3) / 6)(m.a(x)), ["conv2d-hardswish"]),
        (lambda m, x: (lambda y: y * (F.relu6(y + 3, inplace=True) / 6))(m.a(x)), ["conv2d-hardswish"]),
        (lambda m, x: (lambda y: y * F.hardsigmoid(y))(m.a(x)), ["conv2d-hardswish"]),
        (lambda m, x: F.hardtanh(m.a(x).add(3), 0, 6).div(6), ["conv2d-hardsigmoid_0.16666667_0.5"]),
        (lambda m, x: x * F.relu6(m.a(x) + 3) / 6, ["conv2d"]),
        (lambda m, x: F.relu6(m.a(x) + 2) / 6, ["conv2d"]),
        (lambda m, x: (lambda y: y * torch.sigmoid(y) + y)(m.a(x)), ["conv2d"]),
        (writes_before_the_product, ["conv2d"]),
        (lambda m, x: m.prelu(m.a(x)), ["conv2d-leaky_-0.5"]),
        (lambda m, x: x + m.slopes(m.a(x)), ["conv2d-prelu-add"]),
        (lambda m, x: F.prelu(F.prelu(m.a(x), m.slopes.weight), m.slopes.weight), ["conv2d-prelu"]),
        (lambda m, x: F.prelu(m.a(x), m.a.bias), ["conv2d"]),
        (lambda m, x: m.slopes(m.linear(x.mean((2, 3)))), ["linear-prelu"]),
        (lambda m, x: m.slopes(m.linear(x.mean(3).mT[:, :4])), ["linear"]),
    ],
)
def test_activations_that_are_spelled_out(forward: Any, expected: list[str]) -> None:
    torch.manual_seed(0)
    assert computes(rewritten(Model(forward).eval(), torch.randn(2, 4, 6, 5))) == expected


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda m, x: F.conv2d(x, m.filter, m.bias, stride=2, groups=2).relu(), ["conv2d-relu"]),
        (lambda m, x: F.conv2d(x, m.blur, None, 1, "same", 2, 4), ["conv2d"]),
        (lambda m, x: F.conv2d(input=x, weight=m.blur, padding=1, groups=4).tanh(), ["conv2d-tanh"]),
        (lambda m, x: F.conv_transpose2d(m.a(x), m.blur, None, 2, 1, 1, 4), ["conv2d", "conv_transpose2d"]),
        (lambda m, x: F.conv2d(F.conv2d(x, m.blur, groups=4), m.blur, groups=4), ["conv2d", "conv2d"]),
        (lambda m, x: F.conv2d(m.a(x), m.filter * 2, groups=2), ["conv2d", "conv2d"]),
        (lambda m, x: F.conv2d(m.a(x), m.blur, groups=x.shape[1]), ["conv2d", "conv2d"]),
        (lambda m, x: F.conv2d(x, m.blur[:1].expand(x.size(1), -1, -1, -1), groups=x.size()[1]), ["conv2d"]),
        (lambda m, x: F.conv2d(m.a(x), m.blur, groups=x.shape[0] * 2), ["conv2d", "conv2d"]),
        (lambda m, x: F.conv2d(m.a(x), m.blur * x.mean(), groups=x.shape[1]), ["conv2d", "conv2d"]),
    ],
)
def test_convolutions_called_as_functions(forward: Any, expected: list[str]) -> None:
    torch.manual_seed(0)
    assert computes(rewritten(Model(forward).eval(), torch.randn(2, 4, 6, 5))) == expected


@pytest.mark.parametrize(
    ("pool", "means"),
    [
        (nn.AdaptiveAvgPool2d(1), (2, 0)),
        (nn.AdaptiveAvgPool2d((1, 1)), (2, 0)),
        (nn.AdaptiveAvgPool2d((1, 2)), (0, 0)),
        (nn.AdaptiveAvgPool2d((1, None)), (0, 0)),
        (nn.AdaptiveMaxPool2d(1), (0, 0)),
        (lambda y: F.adaptive_avg_pool2d(y, [1, 1]), (2, 0)),
        (lambda y: F.adaptive_avg_pool2d(y, output_size=1), (2, 0)),
        (lambda y: F.adaptive_avg_pool1d(y.flatten(2), 1), (1, 0)),
        (lambda y: F.adaptive_avg_pool3d(y, 1), (0, 1)),
    ],
)
def test_poolings_to_one_pixel_are_means(pool: Any, means: tuple[int, int]) -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 1)
            self.pool = pool

        def forward(self, x: Any) -> Any:
            return self.pool(self.conv(x))

    fast = rewritten(Pooled().eval(), torch.randn(2, 4, 6, 5))
    layers = [row.computes for row in tvmconv.torch.report(fast)].count("mean")
    assert (layers, sum(node.target is torch.mean for node in fast.graph.nodes)) == means


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda m, x: m.linear(x.permute(0, 2, 3, 1)).relu(), ["linear-relu"]),
        (lambda m, x: x + m.linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) * m.scale, ["linear-add"]),
        (lambda m, x: F.silu(m.linear(x.permute(0, 2, 3, 1)).permute([0, -1, 1, 2])) + x, ["linear-silu-add"]),
        (lambda m, x: x.flatten(2) + m.linear(x.flatten(2).mT).transpose(1, -1), ["linear-add"]),
        (lambda m, x: m.linear(x.mT.mT.permute(0, 2, 3, 1)) * m.scale.reshape(1, 4), ["linear"]),
        (lambda m, x: m.linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) * m.image, ["linear"]),
        (lambda m, x: (lambda y: y.permute(0, 3, 1, 2) + y.sum())(m.linear(x.permute(0, 2, 3, 1))), ["linear"]),
        (lambda m, x: F.linear(m.a(x).mean((2, 3)), m.linear.weight * 2), ["conv2d", "linear"]),
        (lambda m, x: F.linear(m.a(x).mean((2, 3)), m.linear.bias), ["conv2d", "linear"]),
        (lambda m, x: F.linear(x.mean((2, 3)), m.linear.weight, m.linear.bias).tanh(), ["linear-tanh"]),
        (lambda m, x: m.norm(m.linear(x.mean((2, 3)))).relu(), ["linear-relu"]),
        (lambda m, x: m.norm(m.linear(x.mean(3).mT[:, :4])).relu(), ["linear"]),
    ],
)
def test_linears(forward: Any, expected: list[str]) -> None:
    torch.manual_seed(0)
    model = Model(forward).eval()
    with torch.no_grad():
        model.norm.running_mean.normal_()
    assert computes(rewritten(model, torch.randn(2, 4, 6, 5))) == expected


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda m, x: x + m.scale * m.a(x), ["conv2d-add"]),
        (lambda m, x: (m.a(x) * m.scale).relu(), ["conv2d-relu"]),
        (lambda m, x: m.scale * x + m.a(x), ["conv2d-add"]),
        (lambda m, x: (m.a(x) * m.image).relu(), ["conv2d"]),
        (lambda m, x: (m.a(x) * m.exact).relu().float(), ["conv2d"]),
        (lambda m, x: m.a(x) * 0.2 + x, ["conv2d-add"]),
        (lambda m, x: (2 * m.a(x) / 3).div(4).mul_(m.prelu.weight).relu(), ["conv2d-relu"]),
        (lambda m, x: m.linear(x.mean((2, 3))).mul_(2).relu(), ["linear-relu"]),
        (lambda m, x: torch.div(m.a(x), 2, rounding_mode="floor").relu(), ["conv2d"]),
        (lambda m, x: (2 / m.a(x)).relu(), ["conv2d"]),
        (lambda m, x: (m.a(x) * True).relu(), ["conv2d"]),
    ],
)
def test_a_factor_of_each_channel_is_folded(forward: Any, expected: list[str]) -> None:
    torch.manual_seed(0)
    assert computes(rewritten(Model(forward).eval(), torch.randn(2, 4, 6, 5))) == expected


def test_weight_norm_is_computed_once_and_the_model_keeps_it() -> None:
    torch.manual_seed(0)
    norm = nn.utils.parametrizations.weight_norm
    model = nn.Sequential(norm(nn.Conv1d(4, 6, 3)), nn.Tanh(), norm(nn.ConvTranspose1d(6, 2, 4, 2), dim=1)).eval()
    data = torch.randn(1, 4, 9)
    fast = rewritten(model, data)
    assert computes(fast) == ["conv1d-tanh", "conv_transpose1d"]
    assert set(fast.state_dict()) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    with torch.no_grad():
        model[0].parametrizations.weight.original0.mul_(2)  # it still computes its weights
    torch.testing.assert_close(model[0].weight, 2 * fast.get_submodule("0").weight)


def standardized(w: Any) -> Any:
    return (w - w.mean(dim=[1, 2, 3], keepdim=True)) / torch.sqrt(w.var([1, 2, 3], keepdim=True) + 1e-5)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (lambda m, x: standardized(m.filter), ["conv2d-relu"]),
        (lambda m, x: F.batch_norm(m.filter.reshape(1, 6, -1), None, None, training=True).reshape_as(m.filter), ["conv2d-relu"]),
        (lambda m, x: m.filter / m.filter.shape[0] * m.prelu.weight, ["conv2d-relu"]),
        (lambda m, x: (m.filter * 2).sub_(1), ["conv2d-relu"]),
        (lambda m, x: m.filter * x.mean(), []),
        (lambda m, x: F.dropout(m.filter), []),
        (lambda m, x: m.filter.clamp_(-1, 1), []),
    ],
)  # fmt: skip
def test_weights_that_are_computed_of_weights_alone_are_computed_once(weight: Any, expected: list[str]) -> None:
    torch.manual_seed(0)
    model = Model(lambda m, x: F.relu(F.conv2d(m.a(x), weight(m, x), m.bias * 2, padding=1, groups=2))).eval()
    data = torch.randn(2, 4, 6, 5)
    with torch.no_grad():
        fast = rewrite(model, [((data,), {})], Notice(silent=True))
        assert [name for name in computes(fast) if name == "conv2d-relu"] == expected
        assert any(name.startswith("filter_of_conv2d") for name in fast.state_dict()) == bool(expected)
        answers = []
        for called in (fast, copy.deepcopy(model)):
            torch.manual_seed(1)
            answers.append(called(data))
        torch.testing.assert_close(*answers, rtol=1e-5, atol=1e-6)
