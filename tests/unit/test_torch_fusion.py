"""Graphs of PyTorch models: what is fused, and what must not be, compared without a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.pads import Pad  # noqa: E402
from tvmconv.torch.rewriting import rewrite  # noqa: E402

Forward = Callable[[Any, Any], Any]


class Model(nn.Module):
    """Two convolutions and a BatchNorm, put together by a function."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.a, self.b, self.norm = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        with torch.no_grad():
            self.norm.running_mean.normal_()
            self.norm.running_var.uniform_(0.5, 2)
        self.function = [forward]

    def forward(self, x: Any) -> Any:
        return self.function[0](self, x)


def changes_what_is_read(m: Any, x: Any) -> Any:
    """The convolution must not move behind what writes to its input."""
    t = torch.sigmoid(x)
    y = m.a(t)
    t.add_(1)
    return t + y


def adds_in_place(m: Any, x: Any) -> Any:
    """torch.fx takes += for +, so the graph is wrong and is not taken."""
    t = torch.sigmoid(x)
    u = t
    u += m.a(x)
    return t * 2 + u


@pytest.mark.parametrize(
    ("forward", "computed"),
    [
        (lambda m, x: m.norm(m.a(x)).relu(), ["conv2d-relu"]),
        (lambda m, x: m.norm(m.a(x)) + m.a.weight.sum(), ["conv2d"]),
        (lambda m, x: m.norm(m.a(F.relu(m.a(x)))), ["conv2d"]),
        (lambda m, x: m.a(x) + m.b(x), ["conv2d", "conv2d-add"]),
        (lambda m, x: (x + F.silu(m.a(x))).tanh(), ["conv2d-silu-add-tanh"]),
        (lambda m, x: torch.add(m.a(x), x, alpha=2), ["conv2d"]),
        (lambda m, x: m.a(x) + 1, ["conv2d"]),
        (lambda m, x: m.a(x) + x.shape[0], ["conv2d"]),
        (lambda m, x: (lambda y: y + y)(m.a(x)), ["conv2d"]),
        (lambda m, x: (lambda y: y * torch.tanh(y))(m.a(x)), ["conv2d"]),
        (lambda m, x: m.a(x).clamp_(min=-0.1), ["conv2d-clip_-0.1_inf"]),
        (lambda m, x: F.hardtanh(m.a(x), -0.5, 0.3), ["conv2d-clip_-0.5_0.3"]),
        (lambda m, x: F.gelu(F.relu6(m.a(x)), approximate="tanh"), ["conv2d-clip_0_6-gelu_tanh"]),
        (lambda m, x: F.leaky_relu(m.a(x), negative_slope=0.25, inplace=True), ["conv2d-leaky_0.25"]),
        (lambda m, x: torch.clamp(m.a(x), max=x.max()), ["conv2d"]),
        (changes_what_is_read, ["conv2d"]),
        (adds_in_place, ["conv2d", "conv2d"]),
    ],
)
def test_what_is_fused_and_what_is_not(forward: Forward, computed: list[str]) -> None:
    torch.manual_seed(0)
    model, data = Model(forward).eval(), torch.randn(2, 4, 6, 5)
    with torch.no_grad():
        fast = rewrite(model, [((data,), {})], Notice(silent=True))
        torch.testing.assert_close(fast(data), model(data), rtol=1e-5, atol=1e-6)
    assert [row.computes for row in tvmconv.torch.report(fast)] == computed


class Halved(nn.Module):
    """A parametrization of one's own."""

    def __init__(self, noise: float = 0.0) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, weight: Any) -> Any:
        return weight / 2 + self.noise * torch.rand_like(weight)


def test_what_is_left_alone_is_reported_with_the_reason() -> None:
    torch.manual_seed(0)
    halved, watched = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)
    nn.utils.parametrize.register_parametrization(halved, "weight", Halved(1e-6))
    watched.register_forward_hook(lambda module, given, answer: answer + 1)
    attention = nn.modules.linear.NonDynamicallyQuantizableLinear(5, 5)  # as nn.MultiheadAttention has it
    model, data = nn.Sequential(halved, watched, attention, nn.Conv2d(4, 2, 1)).eval(), torch.randn(1, 3, 5, 5)
    with torch.no_grad():
        fast = rewrite(model, [((data,), {})], Notice(silent=True))
        torch.testing.assert_close(fast(data), model(data))
    assert [(row.layer, row.by, row.why) for row in tvmconv.torch.report(fast)[:3]] == [
        ("0", "PyTorch", "parametrizations compute its parameters"),
        ("1", "PyTorch", "a hook looks at it, or computes its parameters"),
        ("2", "PyTorch", "NonDynamicallyQuantizableLinear is a subclass, which may compute something else"),
    ]


def test_pruned_and_parametrized_weights_are_computed_once() -> None:
    torch.manual_seed(0)
    prune = nn.utils.prune
    for make in (lambda: nn.Conv2d(4, 4, 3), lambda: nn.ConvTranspose2d(4, 4, 3), lambda: nn.Linear(5, 5)):
        pruned, halved = make(), make()
        prune.l1_unstructured(pruned, "weight", 0.5)
        prune.ln_structured(pruned, "weight", 0.25, 2, 0)
        prune.random_unstructured(pruned, "bias", 0.5)
        nn.utils.parametrize.register_parametrization(halved, "weight", Halved())
        for convolution in (pruned, halved):
            data = torch.randn(1, 4, 5, 5)
            for model in (convolution, nn.Sequential(convolution, nn.ReLU())):
                model.eval()(data)
                with torch.no_grad():
                    fast = rewrite(model, [((data,), {})], Notice(silent=True))
                    torch.testing.assert_close(fast(data), model(data))
                (row,) = tvmconv.torch.report(fast)
                assert row.why.startswith("the opened bundles")
    assert prune.is_pruned(pruned)  # the model's own stays


class Collecting(nn.Module):
    """Takes what it is given, and hands it on."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x: Any, *more: Any, **named: Any) -> Any:
        return self._sum(torch.relu(self.conv(x)), *more, **named)

    def _sum(self, x: Any, *more: Any, scale: Any = 2.0, **named: Any) -> Any:
        return (sum(more, x) + sum(named.values())) * named.get("other", scale)


@pytest.mark.parametrize("more", [(), (1,), (1, 2)])
@pytest.mark.parametrize(
    "named", [{}, {"scale": 3.0}, {"scale": 0.5, "other": 2.0}, {"tensor": torch.ones(1, 4, 5, 5)}]
)
def test_collected_arguments(more: tuple[int, ...], named: dict[str, Any]) -> None:
    model, data = Collecting().eval(), torch.randn(2, 3, 5, 5)
    args = (data, *(torch.full((1, 4, 1, 1), float(number)) for number in more))
    with torch.no_grad():
        fast = rewrite(model, [(args, named)], Notice(silent=True))
        torch.testing.assert_close(fast(*args, **named), model(*args, **named))
    report = tvmconv.torch.report(fast)
    assert not report.graphless and report[0].computes.startswith("conv2d-relu")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_weights_of_norms_are_computed_once() -> None:
    torch.manual_seed(0)
    utils, parametrizations = nn.utils, nn.utils.parametrizations
    model = nn.Sequential(
        utils.weight_norm(nn.Conv1d(4, 6, 3)),
        utils.spectral_norm(nn.ConvTranspose1d(6, 4, 4, 2)),
        parametrizations.spectral_norm(nn.Conv1d(4, 6, 3)),
        parametrizations.orthogonal(nn.Linear(14, 14)),
    )
    data = torch.randn(1, 4, 9)
    model(data)  # with gradients; in training, spectral norms change
    expected = model.eval()(data).detach()
    before = model.state_dict()
    with torch.no_grad():
        fast = rewrite(model, [((data,), {})], Notice(silent=True))
        torch.testing.assert_close(fast(data), expected)
        torch.testing.assert_close(model(data), expected)
    assert [row.computes for row in tvmconv.torch.report(fast)] == ["conv1d", "conv_transpose1d", "conv1d", "linear"]
    assert set(fast.state_dict()) == {f"{number}.{name}" for number in range(4) for name in ("weight", "bias")}
    assert set(model.state_dict()) == set(before)


def test_a_norm_in_training_is_left_alone() -> None:
    norm = nn.utils.spectral_norm(nn.Conv1d(4, 6, 3))
    model, data = nn.Sequential(norm, nn.Conv1d(6, 2, 1)).eval(), torch.randn(1, 4, 9)
    norm.train()
    fast = rewrite(model, [((data,), {})], Notice(silent=True))
    assert [row.by for row in tvmconv.torch.report(fast)] == ["PyTorch", "F.conv1d"]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("first", "shape"),
    [
        (lambda mode: nn.Conv1d(3, 4, 4, padding="same", padding_mode=mode), (1, 3, 7)),
        (lambda mode: nn.Conv2d(3, 4, 3, 2, (1, 2), padding_mode=mode), (2, 3, 6, 5)),
        (lambda mode: nn.Conv3d(3, 4, (1, 3, 3), padding=(0, 1, 1), padding_mode=mode), (1, 3, 4, 5, 6)),
    ],
)
def test_other_pads_than_zeros(mode: str, first: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, data = nn.Sequential(first(mode), nn.ReLU()).eval(), torch.randn(shape)
    with torch.no_grad():
        fast = rewrite(model, [((data,), {})], Notice(silent=True))
        torch.testing.assert_close(fast(data), model(data))
    (row,) = tvmconv.torch.report(fast)
    assert row.computes == f"conv{len(shape) - 2}d-relu"
    assert [each.mode for each in fast.modules() if isinstance(each, Pad)] == [mode]


def test_a_transposed_one_of_groups_is_folded() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(6).eval()
    norm.running_mean.normal_()
    norm.weight.data.normal_()
    model, data = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, 2, groups=2), norm).eval(), torch.randn(1, 4, 5, 5)
    with torch.no_grad():
        fast = rewrite(model, [((data,), {})], Notice(silent=True))
        torch.testing.assert_close(fast(data), model(data), rtol=1e-4, atol=1e-5)
    assert set(fast.state_dict()) == {"0.weight", "0.bias"}
