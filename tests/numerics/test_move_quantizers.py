"""Moves, pools and means between quantizers: in 8 bits, with the bits of onnxruntime, and no array of f32 between kernels."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from tvm import relax

pytest.importorskip("onnxruntime")
from test_network_integers import NAMES, Chains

from tvmconv.frontends.onnx.session import open_session
from tvmconv.network.compile import build
from tvmconv.network.options import Options
from tvmconv.network.passes import run, use_kernels
from tvmconv.network.read.onnx.compare_quantized import find_wrong_quantizers, with_quantized
from tvmconv.network.read.onnx.reader import as_relax, fix_shapes, read_onnx
from tvmconv.network.report import report
from tvmconv.runtime.networks.network import load_network

Between = Callable[[Chains, str], str]


def _shuffle(chains: Chains, x: str) -> str:
    parts = chains.node("Reshape", x, chains.const(np.array([1, 2, 4, 6, 6])))
    parts = chains.node("Transpose", parts, perm=[0, 2, 1, 3, 4])
    return chains.node("Reshape", parts, chains.const(np.array([1, 8, 6, 6])))


def _slice(chains: Chains, x: str) -> str:
    numbers = (chains.const(np.array([each])) for each in (2, 7, 1))
    return chains.node("Slice", x, *numbers)


def _resize(chains: Chains, x: str) -> str:
    scales = chains.const(np.array([1, 1, 2, 2], np.float32))
    given = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return chains.node("Resize", x, "", scales, **given)


# Operators of which nothing in f32 is left where both scales are the same, on (1, 8, 6, 6).
MOVES: dict[str, Between] = {
    "max pool": lambda chains, x: chains.node("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]),
    "transpose": lambda chains, x: chains.node("Transpose", x, perm=[0, 1, 3, 2]),
    "shuffle": _shuffle,
    "slice": _slice,
    "resize": _resize,
    "pad": lambda chains, x: chains.node("Pad", x, chains.const(np.array([0, 0, 1, 2, 0, 0, 0, 1]))),
    "concat": lambda chains, x: chains.node("Concat", x, chains.node("MaxPool", x, kernel_shape=[1, 1]), axis=2),
    "flatten": lambda chains, x: chains.node("Flatten", x),
    "relu": lambda chains, x: chains.node("Relu", x),
    "clip": lambda chains, x: chains.node("Clip", x, *(chains.const(np.float32(bound)) for bound in (-0.7, 0.8))),
}
# Those that compute.
AVERAGES: dict[str, Between] = {
    "global": lambda chains, x: chains.node("GlobalAveragePool", x),
    "average": lambda chains, x: chains.node("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4),
    "counted": lambda chains, x: chains.node(
        "AveragePool", x, kernel_shape=[2, 3], pads=[1, 0, 1, 1], count_include_pad=1
    ),
    "rows": lambda chains, x: chains.node("ReduceMean", x, chains.const(np.array([2])), keepdims=0),
}


def written(folder: Path, names: Iterable[str], seed: int) -> str:
    """Write operators, each between quantizers of one drawn scale, on integers of a drawn type, one after the other drawn move."""
    draw, chains = random.Random(seed), Chains()
    for name in names:
        kind = draw.choice((np.uint8, np.int8))
        bounds, given = np.iinfo(kind), NAMES[np.dtype(kind)]
        zero, scale = kind(draw.randint(bounds.min, bounds.max)), np.float32(draw.uniform(0.01, 0.1))
        numbers = chains.const(scale), chains.const(zero)
        x = chains.node("DequantizeLinear", chains.input([1, 8, 6, 6], given), *numbers)
        for each in (draw.choice(("transpose", "shuffle")), name):
            x = chains.node("QuantizeLinear", {**MOVES, **AVERAGES}[each](chains, x), *numbers)
            x = chains.node("DequantizeLinear", x, *numbers)
        chains.output(chains.node("QuantizeLinear", x, *numbers), given)
    return chains.save(folder)


def answers(source: str, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return inputs of all integers, and what a network gives of them, its quantizers too."""
    model = fix_shapes(source)
    build(as_relax(with_quantized(model, {}), source), folder / "network.so")
    network, rng = load_network(folder / "network.so"), np.random.default_rng(5)
    arrays = {
        each.name: rng.standard_normal(each.shape).astype(each.numpy)
        if each.numpy == np.float32
        else rng.integers(np.iinfo(each.numpy).min, np.iinfo(each.numpy).max, each.shape, each.numpy, True)
        for each in network.inputs
    }
    return arrays, network(**arrays)


def of_f32(source: str) -> list[str]:
    """Return the operators of a network that give f32, after quantizers are moved."""
    found = []

    def note(expr: object) -> None:
        if isinstance(expr, relax.Call) and str(getattr(expr.ty, "dtype", "")) == "float32":
            found.append(str(expr.op.name))

    relax.analysis.post_order_visit(run(read_onnx(source), Options(), "move-quantizers")["main"], note)
    return found


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_moves_stay_in_8_bits(seed: int, tmp_path: Path) -> None:
    source = written(tmp_path, MOVES, seed)
    assert of_f32(source) == []
    arrays, found = answers(source, tmp_path)
    expected = open_session(fix_shapes(source), "ORT_DISABLE_ALL").run(None, arrays)
    for name, answer, right in zip(MOVES, found.values(), expected, strict=False):
        np.testing.assert_array_equal(answer, right, err_msg=f"{name}, seed {seed}")


def test_averages_sum_integers(tmp_path: Path) -> None:
    source = written(tmp_path, AVERAGES, 1)
    assert {"relax.mean", "relax.nn.avg_pool2d", "relax.dequantize"}.isdisjoint(of_f32(source))
    assert find_wrong_quantizers(fix_shapes(source), *answers(source, tmp_path)) == []


def test_quantizers_go_up_to_what_they_round(tmp_path: Path) -> None:
    """A convolution's rounding behind a move, and a concatenation's, of which one part has the scale already."""
    chains, rng = Chains(), np.random.default_rng(0)
    numbers = [chains.const(np.float32(0.05)), chains.const(np.uint8(100))]
    others = [chains.const(np.float32(0.07)), chains.const(np.uint8(90))]
    x = chains.input([1, 8, 6, 6], TensorProto.UINT8)
    weight = chains.const(rng.integers(-127, 128, (8, 8, 1, 1)).astype(np.int8))
    weight = chains.node("DequantizeLinear", weight, chains.const(np.float32(0.01)), chains.const(np.int8(0)))
    made = chains.node("Conv", chains.node("DequantizeLinear", x, *numbers), weight)
    both = chains.node("Concat", _shuffle(chains, made), chains.node("DequantizeLinear", x, *others), axis=1)
    chains.output(chains.node("QuantizeLinear", both, *others), TensorProto.UINT8)
    source = chains.save(tmp_path)
    (row,) = report(use_kernels(read_onnx(source)))
    assert row.signature.endswith("u8s8u8-zx100-scale-q_0.07_90")
    assert find_wrong_quantizers(fix_shapes(source), *answers(source, tmp_path)) == []


def test_channels_have_their_scales_in_either_layout(tmp_path: Path) -> None:
    """As many channels as rows: between convolutions, whose data are channels last."""
    chains, rng = Chains(), np.random.default_rng(0)
    scales, zeros = (np.array(each) for each in ([0.01, 0.02, 0.05, 0.1], [10, 100, 128, 3]))
    numbers = [chains.const(scales.astype(np.float32)), chains.const(zeros.astype(np.uint8))]
    weights = [chains.const(rng.standard_normal((4, 4, 3, 3)).astype(np.float32)) for _ in range(2)]
    x = chains.node("Conv", chains.input([1, 4, 4, 4]), weights[0], pads=[1] * 4)
    for name in ("QuantizeLinear", "DequantizeLinear"):
        x = chains.node(name, x, *numbers, axis=1)
    chains.output(chains.node("Conv", x, weights[1], pads=[1] * 4))
    source = chains.save(tmp_path)
    assert find_wrong_quantizers(fix_shapes(source), *answers(source, tmp_path)) == []


def test_bounds_may_be_nan(tmp_path: Path) -> None:
    chains, numbers = Chains(), (np.float32(0.1), np.uint8(3))
    x = chains.node("DequantizeLinear", chains.input([4], TensorProto.UINT8), *map(chains.const, numbers))
    bounded = chains.node("Max", x, chains.const(np.full(1, np.nan, np.float32)))
    chains.output(chains.node("QuantizeLinear", bounded, *map(chains.const, numbers)), TensorProto.UINT8)
    assert "relax.maximum" in of_f32(chains.save(tmp_path))
