"""Fake quantizations are rounded and bounded as PyTorch's are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.network.read.torch.decompose import decompose  # noqa: E402


class Quantized(nn.Module):
    """By numbers, by tensors that are on or off, and by channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("scales", torch.tensor([0.013, 0.02, 0.05, 0.1]))
        self.register_buffer("zeros", torch.tensor([0, 3, -2, 1], dtype=torch.int32))
        self.register_buffer("on", torch.ones(1, dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        by_tensor = torch._fake_quantize_per_tensor_affine_cachemask_tensor_qparams
        x = torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7)
        off, _ = by_tensor(x, self.scales[:1], self.zeros[1:2], 0 * self.on, 0, 255)
        on, _ = by_tensor(2 * x, self.scales[:1], self.zeros[1:2], self.on, 0, 255)
        filters = torch.fake_quantize_per_channel_affine(self.conv.weight, self.scales, self.zeros, 0, -128, 127)
        y = nn.functional.conv2d(on + off, filters)
        return x, on, torch.fake_quantize_per_channel_affine(y, self.scales, self.zeros, 1, -8, 7)


def test_a_network_of_fake_quantized_numbers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Quantized().eval(), torch.randn(1, 3, 6, 5)
    x[0, 0, 0] = torch.tensor([float("nan"), float("inf"), 0.05, -0.05, 0.15])  # halves are rounded to even steps
    with torch.no_grad():
        program = decompose(torch.export.export(model, (x,), strict=False))
        for answer, right in zip(program.module()(x), model(x), strict=True):
            torch.testing.assert_close(answer, right, rtol=0, atol=0)
    assert not [node for node in program.graph.nodes if "fake_quant" in str(node.target)]
    fast = tvmconv.torch.optimize(model, x, tmp_path, progress=None)
    assert [row for row in tvmconv.torch.report(fast) if row.why] == []
    for answer, right in zip(fast(x)[:2], model(x)[:2], strict=True):
        assert_near(answer, right)


class Decomposed(nn.Module):
    """Written by pt2e: a convolution of what is dequantized, by a filter of integers with a scale for each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("filter", torch.randint(-127, 128, (4, 3, 3, 3), dtype=torch.int8))
        self.register_buffer("scales", torch.tensor([0.001, 0.002, 0.003, 0.004]))
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        pt2e, step = torch.ops.quantized_decomposed, (0.03, 120, 0, 255, torch.uint8)
        x = pt2e.dequantize_per_tensor(pt2e.quantize_per_tensor(x, *step), *step)
        filters = pt2e.dequantize_per_channel(self.filter, self.scales, self.zeros, 0, -128, 127, torch.int8)
        y = torch.relu(nn.functional.conv2d(x, filters, padding=1))
        along = (self.scales, self.zeros, 1, 0, 127, torch.int8)
        return pt2e.quantize_per_tensor(y, *step), pt2e.dequantize_per_channel(
            pt2e.quantize_per_channel(y, *along), *along
        )


def test_what_pt2e_writes_is_read(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Decomposed().eval(), torch.randn(1, 3, 6, 5)
    x[0, 0, 0] = torch.tensor([0.045, 9.0, -9.0, 0.015, -0.015])  # halves, and what is bounded
    with torch.no_grad():
        program = decompose(torch.export.export(model, (x,), strict=False))
        for answer, right in zip(program.module()(x), model(x), strict=True):
            torch.testing.assert_close(answer, right, rtol=0, atol=0)
    fast = tvmconv.torch.optimize(model, x, tmp_path, progress=None)
    assert [row for row in tvmconv.torch.report(fast) if row.why] == []
    for answer, right, step in zip(fast(x), model(x), (1, 0.004), strict=True):
        assert (answer.to(torch.float32) - right.to(torch.float32)).abs().max() < 1.01 * step
