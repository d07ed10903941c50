"""Programs that pt2e quantised: their convolutions and products are kernels of integers, and answers are PyTorch's, quantizer by quantizer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near import assert_near

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_quantized import quantize  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv import cli  # noqa: E402
from tvmconv.errors import SourceError  # noqa: E402
from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.read import quantized  # noqa: E402
from tvmconv.network.read.torch.compare_quantized import find_wrong_quantizers, with_quantized  # noqa: E402
from tvmconv.network.read.torch.reader import read_decomposed, read_torch  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402
from tvmconv.signature import parse_signature  # noqa: E402


class Classifier(nn.Module):
    """Convolutions, sums, pools, a concatenation and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, stride=2)
        self.depth = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 8, 1, bias=False)
        self.wide = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.last = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = self.point(torch.relu(self.depth(torch.relu(self.stem(x)))))
        x = torch.relu(nn.functional.hardswish(self.wide(x)) + x)
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        both = [nn.functional.adaptive_avg_pool2d(each, 1) for each in (x, self.up(x))]
        return self.last(torch.flatten(torch.cat(both, 1), 1))


class Products(nn.Module):
    """Convolutions along one axis, products of rows and of a matrix that is read as it lies."""

    def __init__(self) -> None:
        super().__init__()
        self.along, self.back = nn.Conv1d(6, 8, 3, stride=2), nn.ConvTranspose1d(8, 4, 3, stride=2, groups=2)
        self.rows = nn.Linear(9, 5, bias=False)
        self.matrix = nn.Parameter(torch.randn(5, 7))

    def forward(self, x: Any) -> Any:
        return torch.matmul(self.rows(self.back(torch.relu(self.along(x)))) * 0.5, self.matrix)


CASES = [
    (Classifier, (1, 3, 16, 16), torch.uint8, 127),
    (Products, (2, 6, 9), torch.int8, None),
    *(
        pytest.param(Classifier, (1, 3, 16, 16), each, None, marks=pytest.mark.slow)
        for each in (torch.uint8, torch.int8)
    ),
    pytest.param(Products, (2, 6, 9), torch.uint8, None, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kind", "shape", "dtype", "most"), CASES)
def test_quantized_programs_are_computed_in_integers(
    kind: type[nn.Module], shape: tuple[int, ...], dtype: Any, most: int | None, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    model = quantize(kind(), (x,), random.Random(0), dtype, most)
    program = torch.export.export(model, (x,), strict=False)
    build(read_decomposed(with_quantized(program)), tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    rows = network.description["report"]
    assert len(rows) == (6 if kind is Classifier else 4)
    assert all(parse_signature(row["signature"]).is_quantized for row in rows)
    taken = list(network(**{network.inputs[0].name: x.numpy()}).values())
    assert find_wrong_quantizers(program, [x], taken) == []
    # One step at most, and seldom, where PyTorch's own integers come before, too.
    with torch.no_grad():
        right = program.module()(x).numpy()
    assert np.abs(taken[0] - right).max() < 0.1 * np.abs(right).max()


class Dynamic(nn.Module):
    """As quantizers leave products, and convolutions, whose data have a scale and a zero point that each call computes."""

    def __init__(self, dtype: Any, symmetric: bool) -> None:
        super().__init__()
        self.bounds = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        self.dtype = dtype
        pt2e = torch.ops.quantized_decomposed
        self.choose = pt2e.choose_qparams_symmetric.tensor if symmetric else pt2e.choose_qparams.tensor
        self.bias = nn.Parameter(torch.randn(5))
        for name, shape in (("rows", (5, 7)), ("taps", (5, 3, 3, 2))):
            self.register_buffer(name, torch.randint(-127, 128, shape, dtype=torch.int8))
        self.register_buffer("scales", torch.rand(5) * 0.01 + 0.001)
        self.register_buffer("zeros", torch.zeros(5, dtype=torch.int64))

    def _rounded(self, x: Any) -> Any:
        pt2e = torch.ops.quantized_decomposed
        given = (*self.choose(x, *self.bounds, 1e-5, self.dtype), *self.bounds, self.dtype)
        return pt2e.dequantize_per_tensor.tensor(pt2e.quantize_per_tensor.tensor(x, *given), *given)

    def _weight(self, integers: Any) -> Any:
        numbers = (self.scales, self.zeros, 0, -127, 127, torch.int8)
        return torch.ops.quantized_decomposed.dequantize_per_channel(integers, *numbers)

    def forward(self, x: Any) -> Any:
        made = nn.functional.conv2d(self._rounded(x), self._weight(self.taps), self.bias, stride=(2, 1), padding=1)
        return nn.functional.linear(self._rounded(x.abs()), self._weight(self.rows), self.bias), made


@pytest.mark.parametrize(("dtype", "symmetric"), [(torch.uint8, False), (torch.int8, True)])
def test_scales_that_are_computed(dtype: Any, symmetric: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 7)
    model = Dynamic(dtype, symmetric).eval()
    build(read_torch(torch.export.export(model, (x,), strict=False)), tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    rows = network.description["report"]
    assert len(rows) == 2 and all(parse_signature(row["signature"]).is_quantized for row in rows)
    with torch.no_grad():
        for each in (x, 3 * x + 1, x.clamp(min=0), torch.zeros_like(x)):
            for answer, right in zip(network(x=each.numpy()).values(), model(each), strict=True):
                assert_near(answer, right.numpy(), summed=18, magnitude=float(right.abs().max()))


class WholeProducts(nn.Module):
    """As torchao's `Int8DynamicActivationInt8WeightConfig` writes rows, of which each has its own scale."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.randint(-127, 128, (5, 12), dtype=torch.int8))

    def forward(self, x: Any) -> Any:
        scale = x.abs().amax(1, keepdim=True) / 127
        whole = torch.round(x / scale).to(torch.int8)
        return torch._int_mm(whole, self.rows.t()) * scale, torch._int_mm(whole, whole.t())


def test_products_of_whole_numbers_are_exact_sums(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = WholeProducts().eval(), torch.randn(7, 12)
    build(read_torch(torch.export.export(model, (x,), strict=False)), tmp_path / "network.so")
    network = load_network(tmp_path / "network.so")
    rows = network.description["report"]
    assert any(parse_signature(row["signature"]).is_quantized for row in rows if row["signature"])
    scaled, whole = network(x=x.numpy()).values()
    assert_near(scaled, model(x)[0].numpy())
    assert np.array_equal(whole, model(x)[1].numpy())


def test_models_and_files_have_kernels_of_integers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Optimize and compile models; the exit code is 0, and 1 where a zero point is left out."""
    torch.manual_seed(0)
    x = torch.randn(1, 3, 8, 8)
    model = quantize(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()), (x,), random.Random(1), torch.uint8)
    fast = tvmconv.torch.optimize(model, x, tmp_path / "kept", progress=None)
    assert not any(row.why for row in tvmconv.torch.report(fast))
    (kept,) = (tmp_path / "kept").rglob("*.so")
    (row,) = load_network(kept).description["report"]
    assert parse_signature(row["signature"]).is_quantized
    with torch.no_grad():
        assert_near(fast(x), model(x), summed=27)
    source = str(tmp_path / "model.pt2")
    torch.export.save(torch.export.export(model, (x,), strict=False), source)
    compiled = ["compile", source, "-o", str(tmp_path / "network.so")]
    assert cli.main(compiled) == 0
    assert "1 of 1 convolutions and products run as tvmconv kernels" in capsys.readouterr().err
    centre = quantized._centre
    monkeypatch.setattr(
        quantized,
        "_centre",
        lambda emit, data: centre(emit, quantized.Quantized(data.values, data.scale, data.zero - 1, data.axis)),
    )
    assert cli.main([*compiled, "--no-cache"]) == 1  # a copy of the library would not be compared again
    assert "1 quantizers or outputs differ from PyTorch's, given the same integers" in capsys.readouterr().err


def test_what_is_no_scale_or_zero_point_is_named() -> None:
    class Wrong(nn.Module):
        def __init__(self, scale: float, zero: int) -> None:
            super().__init__()
            self.numbers = scale, zero, 0, 255, torch.uint8

        def forward(self, x: Any) -> Any:
            return torch.ops.quantized_decomposed.quantize_per_tensor(x, *self.numbers)

    class WrongWeights(Wrong):
        def forward(self, x: Any) -> Any:
            weights = torch.tensor([[3, 4]], dtype=torch.uint8)
            return x @ torch.ops.quantized_decomposed.dequantize_per_tensor(weights, *self.numbers).T

    for scale, zero, message in (
        (-1.0, 0, "has a scale of -1.0: scales are positive and finite"),
        (float("nan"), 0, "has a scale of nan: scales are positive and finite"),
        (1.0, 300, "those of uint8 are 0 to 255"),
    ):
        for kind, name in ((Wrong, "quantize"), (WrongWeights, "dequantize")):
            program = torch.export.export(kind(scale, zero), (torch.ones(2),), strict=False)
            with pytest.raises(SourceError, match=rf"{name}_per_tensor.default \(File .*\): .*{message}"):
                read_torch(program)
