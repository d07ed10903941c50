"""Quantized networks beside onnxruntime, quantizer by quantizer: right ones pass however deep, wrong ones do not, however little."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from test_network_integers import Chains

from tvmconv import cli
from tvmconv.network.compile import build
from tvmconv.network.operators import quantize
from tvmconv.network.read import quantized
from tvmconv.network.read.onnx import quantized_operators
from tvmconv.network.read.onnx.compare_quantized import find_wrong_quantizers, with_quantized
from tvmconv.network.read.onnx.reader import as_relax, fix_shapes
from tvmconv.runtime.networks.network import load_network


def written(folder: Path, operators: bool = False, seed: int = 0) -> str:
    """Write a convolution and a sum between quantizers, by QDQ or by operators on integers; return the file's name."""
    chains, rng = Chains(), np.random.default_rng(seed)

    def numbers(scale: float, zero: int) -> list[str]:
        return [chains.const(np.float32(scale)), chains.const(np.uint8(zero))]

    def filters(*shape: int) -> str:
        return chains.const(rng.integers(-127, 128, shape).astype(np.int8))

    x, first = chains.input([1, 8, 20, 20]), numbers(0.03, 120)
    x = chains.node("QuantizeLinear", x, *first)
    weight = [chains.const(np.float32(0.004)), chains.const(np.int8(0))]
    after, pads = numbers(0.09, 131), {"pads": [1] * 4}
    left = chains.node("DequantizeLinear", x, *first)
    if operators:
        made = chains.node("QLinearConv", x, *first, filters(8, 8, 3, 3), *weight, *after, **pads)
    else:
        right = chains.node("DequantizeLinear", filters(8, 8, 3, 3), *weight)
        made = chains.node("QuantizeLinear", chains.node("Conv", left, right, **pads), *after)
    first = numbers(0.1, 125)
    x = chains.node("QuantizeLinear", chains.node("Add", left, chains.node("DequantizeLinear", made, *after)), *first)
    chains.output(chains.node("DequantizeLinear", x, *first))
    return chains.save(folder)


def found(source: str, folder: Path) -> list[str]:
    """Return the findings on a network of a file."""
    model = fix_shapes(source)
    build(as_relax(with_quantized(model, {}), source), folder / "probe.so")
    network = load_network(folder / "probe.so")
    arrays = {name: 2 * each for name, each in network.random_inputs().items()}
    return find_wrong_quantizers(model, arrays, network(**arrays))


@pytest.mark.parametrize("operators", [False, True])
def test_right_networks_are_explained(operators: bool, tmp_path: Path) -> None:
    assert found(written(tmp_path, operators), tmp_path) == []


def one_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read one number of each filter one step off."""
    less = quantized._less_zeros

    def changed(array: Any, weights: Any, outputs: int) -> Any:
        array = array.copy()
        array.reshape(-1)[7] += 1 if array.reshape(-1)[7] < 127 else -1
        return less(array, weights, outputs)

    monkeypatch.setattr(quantized, "_less_zeros", changed)


def zero_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read each zero point of data one too large."""
    read = quantized.read_quantized

    def changed(values: Any, scale: Any, zero: Any, axis: int = 1) -> Any:
        made = read(values, scale, zero, axis)
        return made and quantized.Quantized(made.values, made.scale, made.zero + int(made.array is None), made.axis)

    monkeypatch.setattr(quantized, "read_quantized", changed)
    monkeypatch.setattr(quantized_operators, "read_quantized", changed)


def rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Round up above 0.7, not above 0.5."""
    nearest = quantize.round_to_integer

    def changed(step: Any, value: Any, dtype: str) -> Any:
        return nearest(step, value - step.numbers[0] / 5, dtype)

    monkeypatch.setattr(quantize, "round_to_integer", changed)


@pytest.mark.parametrize(("wrong", "operators"), [(one_weight, True), (zero_point, False), (rounding, False)])
def test_wrong_networks_are_not(wrong: Any, operators: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path, operators)
    wrong(monkeypatch)
    (said, *_) = found(source, tmp_path)
    assert " by up to " in said


def test_compile_fails_where_one_weight_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one_weight(monkeypatch)
    assert cli.main(["compile", written(tmp_path), "-o", str(tmp_path / "network.so")]) == 1
    assert "quantizers or outputs differ from onnxruntime" in capsys.readouterr().err
