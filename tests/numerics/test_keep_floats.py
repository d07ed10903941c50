"""Layers of quantised networks in f32 where that is estimated to be faster (`--quantized fastest`): the quantizers round the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
from test_network_integers import Chains

from tvmconv.errors import InputError
from tvmconv.network.compile import build
from tvmconv.network.kernels import keep_floats
from tvmconv.network.options import Options
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.compare_quantized import find_wrong_quantizers, with_quantized
from tvmconv.network.read.onnx.reader import as_relax, fix_shapes
from tvmconv.network.report import in_f32, report
from tvmconv.runtime.networks.network import load_network


def _quantized(chains: Chains, tensor: str, scale: float, zero: int) -> str:
    numbers = chains.const(np.float32(scale)), chains.const(np.uint8(zero))
    return chains.node("DequantizeLinear", chains.node("QuantizeLinear", tensor, *numbers), *numbers)


def _layers(folder: Path) -> str:
    """Write a convolution with a bias and a ReLU, a depthwise one, a transposed one and a product, between quantizers."""
    chains, rng = Chains(), np.random.default_rng(0)
    scales = rng.uniform(0.002, 0.01, 256).astype(np.float32)

    def filter_(*shape: int, axis: int = 0) -> str:
        array, size = rng.integers(-127, 128, shape).astype(np.int8), shape[axis]
        numbers = chains.const(scales[:size]), chains.const(np.zeros(size, np.int8))
        return chains.node("DequantizeLinear", chains.const(array), *numbers, axis=axis)

    factor, whole = (scales[:16] * np.float32(0.03)).astype(np.float32), rng.integers(-500, 500, 16).astype(np.int32)
    bias = chains.node("DequantizeLinear", *map(chains.const, (whole, factor)), axis=0)
    x = _quantized(chains, chains.input([1, 8, 9, 9]), 0.03, 120)
    x = chains.node("Relu", chains.node("Conv", x, filter_(16, 8, 3, 3), bias, pads=[1] * 4))
    x = _quantized(chains, x, 0.05, 0)
    x = _quantized(chains, chains.node("Conv", x, filter_(16, 1, 3, 3), group=16, strides=[2, 2]), 0.05, 100)
    x = _quantized(
        chains, chains.node("ConvTranspose", x, filter_(16, 4, 2, 2, axis=1), strides=[2, 2], group=1), 0.1, 90
    )
    x = chains.node("MatMul", _quantized(chains, chains.node("Flatten", x), 0.1, 90), filter_(256, 5, axis=1))
    chains.output(_quantized(chains, x, 0.5, 90))
    return chains.save(folder)


@pytest.mark.parametrize("faster", ["f32", "convolutions", "integers"])
def test_layers_that_are_faster_in_f32_are_computed_so(
    faster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def estimates(problem: object, *_: object) -> tuple[float, float]:
        alone = faster == "convolutions" and getattr(problem, "groups", 1) > 1
        return (1.0, 2.0) if faster == "integers" or alone else (1.0, 0.5)

    monkeypatch.setattr(keep_floats, "estimates", estimates)
    source = _layers(tmp_path)
    model = fix_shapes(source)
    module = as_relax(with_quantized(model, {}), source)
    made = use_kernels(module, quantized="fastest")
    types = [row.signature.split("-XIO-")[1].split("-")[0] for row in report(made)]
    expected = {"f32": ["f32"] * 4, "convolutions": ["f32", "u8s8u8", "f32", "f32"], "integers": ["u8s8u8"] * 4}
    assert types == expected[faster]
    assert len(in_f32(made)) == types.count("f32")
    assert all("0.50 of the estimated cycles" in line for line in in_f32(made))
    build(module, tmp_path / "network.so", quantized="fastest")
    network = load_network(tmp_path / "network.so")
    arrays = network.random_inputs()
    assert find_wrong_quantizers(model, arrays, network(**arrays)) == []


def test_other_choices_are_refused() -> None:
    with pytest.raises(InputError, match="quantized is 'f32'; allowed: model, fastest"):
        Options(quantized="f32")


def test_reproducible_networks_do_not_depend_on_estimates() -> None:
    with pytest.raises(InputError, match="quantized='fastest' is decided by estimates, which differ between CPUs"):
        Options(math="reproducible", quantized="fastest")
