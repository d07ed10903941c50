"""The operators between kernels that each library has: as PyTorch's, for any shape, with AVX-512 and without."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as functional  # noqa: E402
from kernels import isa  # noqa: E402
from native_functions import offer_functions  # noqa: E402
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch import native  # noqa: E402
from tvmconv.torch.layout import CHANNELS_SECOND  # noqa: E402
from tvmconv.torch.pads import by_axis  # noqa: E402
from tvmconv.torch.pools import MaxPool  # noqa: E402

POOLS = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}


@pytest.fixture(params=[pytest.param(name, marks=isa(name)) for name in ("x86-64-v3", "x86-64-v4")])
def functions(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_FUNCTIONS", {})
    offer_functions(request.param, tmp_path)


def special(tensor: Any, generator: Any) -> Any:
    """Return a tensor with some NaN of both signs, infinities and zeros."""
    flat = tensor.flatten()
    for value in (math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0):
        flat[torch.randint(len(flat), (1 + len(flat) // 40,), generator=generator)] = value
    return flat.view(tensor.shape)


@pytest.mark.parametrize("dtype", native.TYPES)
def test_maxima_are_pytorchs(dtype: Any, functions: None) -> None:
    draw = np.random.default_rng(1)
    generator = torch.Generator().manual_seed(1)
    for rank, signs in itertools.product((1, 2, 3, 1, 2, 3, 2, 2), (True, False)):
        taps, strides, dilations = (tuple(map(int, draw.integers(1, 4, rank))) for _ in range(3))
        pads = tuple(int(draw.integers(0, tap // 2 + 1)) for tap in taps)
        sizes = tuple(
            (tap - 1) * dilation + 1 + int(draw.integers(0, 9)) for tap, dilation in zip(taps, dilations, strict=True)
        )
        channels = int(draw.choice([1, 3, 8, 15, 16, 17, 32, 40, 64, 67]))
        data = torch.randn(int(draw.integers(1, 3)), channels, *sizes, generator=generator)
        data = CHANNELS_SECOND.laid_out(special(data if signs else data.abs(), generator).to(dtype))
        expected = POOLS[rank](data, taps, strides, pads, dilations)
        each_axis = zip(sizes, expected.shape[2:], taps, strides, pads, dilations, strict=True)
        out = CHANNELS_SECOND.laid_out(torch.full_like(expected, 7.0))
        axes = list(each_axis)
        assert native.pools(dtype, axes)
        native.max_pool(data, axes, out)()
        assert torch.equal(out.isnan(), expected.isnan())
        assert torch.equal(out.nan_to_num(5.0), expected.nan_to_num(5.0)), (data.shape, taps, strides, pads, dilations)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", native.PAD_MODES)
def test_pads_are_pytorchs(mode: str, dtype: Any, functions: None) -> None:
    draw = np.random.default_rng(2)
    generator = torch.Generator().manual_seed(2)
    for number in range(40):
        rank = int(draw.integers(1, 4))
        sizes = [int(size) for size in draw.integers(2, 9, rank)]
        if number == 0:
            sizes[-1] = 3000  # several blocks of a row
        most = {"reflect": 1, "circular": 0}.get(mode, -4)
        pad = [
            int(draw.integers(0 if mode != "constant" else -1, size - most + 1)) for size in sizes[::-1] for _ in "be"
        ]
        data = torch.randn(
            int(draw.integers(1, 3)), int(draw.choice([1, 3, 8, 17, 32, 40])), *sizes, generator=generator
        )
        data = special(data, generator).to(dtype)
        value = float(draw.choice([0.0, 1.5, -math.inf]))
        expected = functional.pad(data, pad, mode, value if mode == "constant" else None)
        if 0 in expected.shape:
            continue
        swapped = data.transpose(1, 2).contiguous().transpose(1, 2)
        for each in (data, CHANNELS_SECOND.laid_out(data), data.repeat_interleave(2, 1)[:, ::2], swapped):
            out = CHANNELS_SECOND.laid_out(torch.full_like(expected, 7.0))
            write = native.pad(each, *by_axis(pad, rank), mode, value, out)
            assert write is not None
            write()
            assert torch.equal(out.isnan(), expected.isnan())
            assert torch.equal(out.nan_to_num(5.0), expected.nan_to_num(5.0)), (data.shape, pad)


@pytest.mark.parametrize("dtype", native.TYPES)
@pytest.mark.parametrize("channels", [(64, 64), (1, 3, 40), (96, 16, 33, 7), (5,)])
def test_channels_are_put_together(dtype: Any, channels: tuple[int, ...], functions: None) -> None:
    parts = [CHANNELS_SECOND.laid_out(torch.randn(2, count, 11, 7).to(dtype)) for count in channels]
    out = CHANNELS_SECOND.laid_out(torch.empty(2, sum(channels), 11, 7, dtype=dtype))
    native.Concatenation().bind(parts, dim=1, out=out)()
    assert torch.equal(out, torch.cat(parts, 1))
    rows = torch.empty(2, channels[0], 22, 7, dtype=dtype)  # along another axis: PyTorch's
    native.Concatenation().bind([parts[0], parts[0]], 2, out=rows)()
    assert torch.equal(rows, torch.cat([parts[0]] * 2, 2))


@pytest.mark.parametrize("dtype", native.TYPES)
@pytest.mark.parametrize("channels", [1, 7, 16, 24, 96, 100, 771])
@pytest.mark.parametrize("affine", [True, False])
def test_layers_are_normalized(dtype: Any, channels: int, affine: bool, functions: None) -> None:
    data = (3 * torch.randn(2, 13, channels) + 5).to(dtype)
    weight, bias = (torch.randn(channels).to(dtype) if affine else None for _ in range(2))
    out = torch.empty_like(data)
    native.layer_norm(data, (channels,), weight, bias, 1e-6, out=out)
    exact = [None if each is None else each.double() for each in (data, weight, bias)]
    expected = functional.layer_norm(exact[0], (channels,), *exact[1:], 1e-6)
    rounding = 2**-8 if dtype == torch.bfloat16 else 1e-5
    assert torch.allclose(out.double(), expected, rtol=rounding, atol=rounding if channels > 1 else 1e-2)
    data[1, 2, channels // 2] = math.nan
    native.layer_norm(data, channels, weight, bias, 1e-6, out=out)
    assert out[1, 2].isnan().all() and not out[1, 3].isnan().any()


def test_what_has_no_function_is_pytorchs(functions: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not native.pools(torch.float32, [(40, 8, 33, 1, 0, 1)] * 2)  # too many taps
    assert not native.pools(torch.float16, [(40, 40, 1, 1, 0, 1)] * 2)
    assert not native.pools(torch.float32, [(1, 1, 2, 1, 1, 3)])  # none of them meets an input
    for data, shape in ((torch.randn(3, 4, 5), (4, 5)), (torch.randn(5, 3).t(), 5), (torch.randn(4, 5).double(), 5)):
        out = torch.empty_like(data)
        assert torch.equal(
            native.layer_norm(data, shape, out=out),
            functional.layer_norm(data, out.shape[-1:] if shape == 5 else shape),
        )
    monkeypatch.setattr(native, "_FUNCTIONS", {})
    native.offer(SimpleNamespace(library=object()))  # of a bundle that is older
    assert not native.pools(torch.float32, [(40, 40, 1, 1, 0, 1)] * 2)


class Between(nn.Module):
    """All of them between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Conv2d(8, 24, 3, padding=1), nn.Conv2d(8, 40, 1), nn.Conv2d(64, 8, 1)
        self.norm, self.pool = nn.LayerNorm(64), nn.MaxPool2d(3, 2, 1)

    def forward(self, x: Any) -> Any:
        x = self.pool(torch.cat([self.first(x), self.second(x)], 1))
        x = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.third(functional.layer_norm(x.permute(0, 2, 3, 1), (64,)).permute(0, 3, 1, 2))


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_plans_call_them(dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    data, called = CHANNELS_SECOND.laid_out(torch.randn(2, 8, 20, 22)), []
    bound, normalize, put = MaxPool.bind, native.layer_norm, native.Concatenation.bind

    def counted(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            called.append(function)
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(MaxPool, "bind", counted(bound))
    monkeypatch.setattr("tvmconv.torch.writers.layer_norm", counted(normalize))
    monkeypatch.setattr(native.Concatenation, "bind", counted(put))
    with torch.no_grad():
        model = Between().eval()
        expected = model(data)
        fast = tvmconv.torch.optimize(model, data, bundle=tmp_path / "b", dtype=dtype, progress=None)
        data = data.to(dtype or torch.float32)
        for _ in range(3):
            answer = fast(data)
        assert {*called} == {bound, normalize, put} and native._FUNCTIONS
        assert torch.allclose(answer.float(), expected, atol=1e-5 if dtype is None else 0.1)
        model.norm.weight.mul_(2)
        fast.norm.weight.mul_(2)
        assert torch.allclose(fast(data).float(), model(data.float()), atol=1e-5 if dtype is None else 0.2)


def test_gradients_of_what_stands_between(tmp_path: Path) -> None:
    model, data = Between().eval(), CHANNELS_SECOND.laid_out(torch.randn(2, 8, 20, 22))
    fast = tvmconv.torch.optimize(model, data, bundle=tmp_path / "b", progress=None)
    with torch.no_grad():
        for _ in range(2):
            fast(data)
    fast.norm.weight.requires_grad_()
    model.requires_grad_(False).norm.weight.requires_grad_()
    model(data).square().sum().backward()
    fast(data).square().sum().backward()
    assert torch.allclose(fast.norm.weight.grad, model.norm.weight.grad, rtol=1e-3, atol=1e-3)


class Strided(nn.Module):
    """Pads so that strides are whole, as sound codecs do."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 4, 2)

    def forward(self, x: Any) -> Any:
        end = math.ceil((x.shape[-1] - 2) / 2) * 2 - x.shape[-1] + 2
        if x.shape[-1] <= 2:
            x = functional.pad(x, (0, 2))
        return self.conv(functional.pad(x, (2, end), "reflect"))


class Padding(nn.Module):
    """Pads of each kind before convolutions, and cuts after them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(8, 16, 7, padding=3, padding_mode="reflect")
        self.causal, self.up = nn.Conv1d(16, 16, 3, dilation=2), nn.ConvTranspose1d(16, 8, 8, 4)
        self.by_size = Strided(8)

    def forward(self, x: Any) -> Any:
        x = self.causal(functional.pad(functional.elu(self.first(x)), (4, 0)))
        return self.by_size(functional.elu(self.up(functional.pad(x, (0, 1), "replicate"))[..., 2:-2]))


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_pads_within_plans(dtype: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = Padding().eval(), torch.randn(2, 8, 301)
    with torch.no_grad():
        fast = tvmconv.torch.optimize(model, data, bundle=tmp_path / "b", dtype=dtype, progress=None)
        report = tvmconv.torch.report(fast)
        assert not report.graphless and all("," in row.by for row in report), report
        for size in (301, 301, 60, 301):  # of the second there is no kernel
            data = torch.randn(2, 8, size)
            answer = fast(data.to(dtype or torch.float32))
            assert torch.allclose(answer.float(), model(data), atol=1e-5 if dtype is None else 0.1)
        view = data.transpose(1, 2).contiguous().transpose(1, 2).to(dtype or torch.float32)
        assert torch.allclose(fast(view).float(), model(data), atol=1e-5 if dtype is None else 0.1)
    loud = data.to(dtype or torch.float32).requires_grad_()
    fast(loud).sum().backward()
    assert loud.grad is not None and bool(loud.grad.isfinite().all())
