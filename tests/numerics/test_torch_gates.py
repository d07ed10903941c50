"""Means over all pixels, and products with a factor for each channel, of an optimized network: by kernels where they fit."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch.gates import Gate  # noqa: E402

_CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class Squeezed(nn.Module):
    """Squeeze and excitation, the factors left or right, and a mean that keeps no axes."""

    def __init__(self, rank: int = 2, channels: int = 10) -> None:
        super().__init__()
        kind = _CONVOLUTIONS[rank]
        self.before, self.after = kind(3, channels, 1), kind(channels, channels, 1)
        self.squeeze, self.excite = kind(channels, 4, 1), kind(4, channels, 1)
        self.factors = nn.Parameter(torch.rand(1, channels, *(1,) * rank))
        self.axes = tuple(range(2, rank + 2))

    def forward(self, x: Any) -> Any:
        y = self.before(x)
        gate = torch.sigmoid(self.excite(self.squeeze(y.mean(self.axes, keepdim=True)).relu()))
        z = self.after(gate * y) * gate
        return z.mean(self.axes), self.after(self.factors * z)


SHAPES = [(1, 3, 7), (1, 3, 6, 5), (2, 3, 9, 1), (1, 3, 1, 4), (2, 3, 3, 4, 5), (1, 3, 300, 2), (1, 3, 257)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gates") / "bundle"


def _optimized(bundle: Path, shape: tuple[int, ...], dtype: Any = torch.float32) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    network = Squeezed(len(shape) - 2).eval().requires_grad_(False)
    data = torch.randn(shape)
    fast = tvmconv.torch.optimize(network, data, bundle=bundle, dtype=dtype, progress=None)
    return network.to(dtype), fast, data.to(dtype)


def _why(fast: nn.Module) -> dict[str, list[str]]:
    rows = [row for row in tvmconv.torch.report(fast) if row.computes in ("mean", "mul")]
    return {name: [row.why for row in rows if row.computes == name] for name in ("mean", "mul")}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_compute_what_pytorch_does(shape: tuple[int, ...], dtype: Any, bundle: Path) -> None:
    network, fast, data = _optimized(bundle, shape, dtype)
    tolerance = 1e-5 if dtype is torch.float32 else 3e-2
    for given in (data, data * 2):
        for answer, expected in zip(fast(given), network(given), strict=True):
            torch.testing.assert_close(answer, expected, rtol=tolerance, atol=tolerance)


def test_what_computes_them(bundle: Path) -> None:
    assert _why(_optimized(bundle, (1, 3, 6, 5))[1]) == {"mean": [""] * 4, "mul": [""] * 3}
    assert _why(_optimized(bundle, (1, 3, 7))[1]) == {"mean": [""] * 2, "mul": [""] * 3}
    assert _why(_optimized(bundle, (1, 3, 257))[1])["mean"] == []  # too long
    # Images with factors of their own, and factors that all share.
    theirs = "the factors have the shape (2, 10, 1, 1, 1)"
    assert _why(_optimized(bundle, (2, 3, 3, 4, 5))[1]) == {"mean": [""] * 4, "mul": [theirs, theirs, ""]}


class Pooled(nn.Module):
    """Axes counted from the end, of which one is long in other data alone."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 5, 1), nn.Conv2d(5, 5, 1)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        return y.mean((-1, -2)), self.last(y).mean(dim=[-2, -1], keepdim=True)


def test_other_shapes_have_their_means(bundle: Path) -> None:
    torch.manual_seed(0)
    network = Pooled().eval().requires_grad_(False)
    fast = tvmconv.torch.optimize(network, torch.randn(1, 3, 1, 4), bundle=bundle, progress=None)
    for shape in [(1, 3, 1, 4), (2, 3, 5, 4), (3, 1, 4), (1, 3, 300, 4)]:
        data = torch.randn(shape)
        for answer, expected in zip(fast(data), network(data), strict=True):
            torch.testing.assert_close(answer, expected, rtol=1e-5, atol=1e-5)


def test_images_of_a_batch_are_scaled_one_by_one(bundle: Path) -> None:
    """Those of a slice have factors of their own."""
    torch.manual_seed(0)
    network, data = Squeezed(channels=64).eval(), torch.randn(8, 3, 64, 64)
    fast = tvmconv.torch.optimize(network, data, bundle=bundle, progress=None)
    with torch.no_grad():
        for given in (data, data.flip(0)):
            for answer, expected in zip(fast(given), network(given), strict=True):
                torch.testing.assert_close(answer, expected, rtol=1e-5, atol=1e-5)
    assert "" in _why(fast)["mul"]


def test_other_data_are_pytorchs(bundle: Path, recwarn: pytest.WarningsRecorder) -> None:
    _, fast, _ = _optimized(bundle, (1, 3, 6, 5))
    mean = next(each for each in fast.modules() if isinstance(each, Gate) and each.convolution.name == "mean")
    mul = next(each for each in fast.modules() if isinstance(each, Gate) and each.convolution.name == "mul")
    last = torch.randn(1, 6, 5, 10).permute(0, 3, 1, 2)
    factors = torch.randn(1, 10, 1, 1)
    for data in (last.contiguous(), last.double(), last.bfloat16(), last[:0]):
        torch.testing.assert_close(mean(data), data.mean(-1, keepdim=True))
        assert torch.equal(mul(data, residual=factors), data * factors)
    long = torch.randn(1, 3, 300, 10).movedim(-1, 1)
    torch.testing.assert_close(mean(long), long.mean(-1, keepdim=True))
    assert torch.equal(mul(last, residual=factors.double()), last * factors.double())
    spread = torch.randn(1, 20, 1, 1)[:, ::2]
    assert torch.equal(mul(last, residual=spread), last * spread)
    assert (
        mean(last.to("meta")).shape == (1, 10, *mean(last).shape[2:])
        and mul(last.to("meta"), residual=factors.to("meta")).is_meta
    )
    assert not [str(each.message) for each in recwarn.list]


def test_have_no_state_and_can_be_copied_exported_and_compiled(bundle: Path) -> None:
    network, fast, data = _optimized(bundle, (1, 3, 6, 5))
    assert fast.state_dict().keys() == network.state_dict().keys()
    compiled = torch.compile(copy.deepcopy(fast), backend="eager", fullgraph=True)
    for other in (copy.deepcopy(fast), torch.export.export(fast, (data,)).module(), compiled):
        for answer, expected in zip(other(data), network(data), strict=True):
            torch.testing.assert_close(answer, expected, rtol=1e-5, atol=1e-6)


def test_gradients_are_pytorchs(bundle: Path) -> None:
    network, fast, data = _optimized(bundle, (1, 3, 6, 5))
    gradients = []
    for model in (network, fast):
        given = data.clone().requires_grad_()
        sum(answer.sum() for answer in model(given)).backward()
        gradients.append(given.grad)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)


class Norms(nn.Module):
    """Means of the last axis, as norms have them, whose channels do not lie last."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.scale = nn.Linear(8, 8), nn.Linear(8, 8), nn.Parameter(torch.rand(6, 1))

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.second(y * self.scale + y.mean((1, 2), keepdim=True))


def test_norms_stay_pytorchs(bundle: Path) -> None:
    torch.manual_seed(0)
    network, data = Norms().eval(), torch.randn(2, 6, 8)
    fast = tvmconv.torch.optimize(network, data, bundle=bundle, progress=None)
    with torch.no_grad():
        torch.testing.assert_close(fast(data), network(data), rtol=1e-5, atol=1e-5)
    assert all(_why(fast)["mean"]) and all(_why(fast)["mul"])


def test_random_networks(bundle: Path) -> None:
    draw = random.Random(1)
    for number in range(6):
        rank = draw.choice((1, 2, 2, 3))
        network = Squeezed(rank, draw.randrange(1, 70)).eval().requires_grad_(False)
        data = torch.randn(draw.choice((1, 1, 2)), 3, *(draw.randrange(1, 12) for _ in range(rank)))
        dtype = draw.choice((torch.float32, torch.bfloat16, torch.float16))
        fast = tvmconv.torch.optimize(network, data, bundle=bundle.parent / f"{number}", dtype=dtype, progress=None)
        network.float()
        for answer, expected in zip(fast(data.to(dtype)), network(data), strict=True):
            torch.testing.assert_close(answer.float(), expected, rtol=5e-2, atol=5e-2)
