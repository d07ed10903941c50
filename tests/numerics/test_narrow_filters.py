"""Filters of 16 bits as ones of 8, and what their sums lack: the same integers, in all operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm

pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper
from test_network_integers import Chains, answers

from tvmconv.network.kernels import narrow_filters
from tvmconv.network.options import Options
from tvmconv.ops import convolution
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature

RNG = np.random.default_rng(0)


def _bytes(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def _operators(folder: Path) -> str:
    """Write convolutions and products by bytes less 120 or other zero points, of data with fixed and computed ones."""
    chains = Chains()

    def numbers(scale: float, zero: int) -> tuple[str, str]:
        return chains.const(np.float32(scale)), chains.const(np.uint8(zero))

    def dequantized(array: np.ndarray, axis: int) -> str:
        size = array.shape[axis]
        scales = RNG.uniform(0.002, 0.01, size).astype(np.float32)
        zeros = np.linspace(0, 255, size).astype(np.uint8)
        return chains.node("DequantizeLinear", *map(chains.const, (array, scales, zeros)), axis=axis)

    window = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}
    for kind, shape, filter_, given in (
        ("ConvInteger", [1, 4, 9, 8], _bytes(5, 4, 3, 2), window),
        ("MatMulInteger", [2, 3, 8], _bytes(8, 20), {}),
    ):
        x, w = chains.input(shape), chains.const(filter_)
        chains.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], [f"{x}.{part}" for part in "yzs"]))
        made = chains.node(kind, f"{x}.y", w, f"{x}.s", chains.const(np.uint8(120)), **given)
        chains.output(made, TensorProto.INT32)
    x = chains.input([1, 4, 9, 8], TensorProto.UINT8)
    parts = [x, *numbers(0.02, 110), chains.const(_bytes(5, 4, 3, 2)), *numbers(0.01, 120), *numbers(0.3, 100)]
    chains.output(chains.node("QLinearConv", *parts, **window), TensorProto.UINT8)
    x = chains.node("DequantizeLinear", chains.input([1, 4, 9, 8], TensorProto.UINT8), *numbers(0.02, 110))
    for kind, axis in (("Conv", 0), ("ConvTranspose", 1)):
        made = chains.node(kind, x, dequantized(_bytes(4, 4, 3, 2), axis), **window)
        chains.output(chains.node("QuantizeLinear", chains.node("Relu", made), *numbers(0.2, 3)), TensorProto.UINT8)
    return chains.save(folder)


def test_sums_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow_filters, "is_faster", lambda problem, *_: problem.types.filter == "s16")
    got, expected, signatures = answers(_operators(tmp_path), tmp_path)
    filters = [parse_signature(each).types.filter for each in signatures]
    assert len(filters) == 10 and set(filters) == {"s8"}
    for (name, answer), right in zip(got.items(), expected, strict=True):
        if name in list(got)[:3]:
            np.testing.assert_array_equal(answer, right)
        else:  # onnxruntime sums in f32
            assert np.abs(answer.astype(int) - right).max() <= 1


def test_filters_of_more_than_256_numbers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow_filters, "is_faster", lambda *_: True)
    relax = tvm.relax
    for high, count in ((127, 2), (128, 1)):
        filter_ = RNG.integers(-128, high + 1, (5, 4, 1, 1)).astype(np.int16)
        filter_[2, :2, 0, 0] = -128, high
        builder, data = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 4, 9, 8), "uint8"))
        with builder.function("main", [data]):
            with builder.dataflow():
                wide = builder.emit(relax.op.astype(data, "int16"))
                made = builder.emit_output(relax.op.nn.conv2d(wide, relax.const(filter_), out_dtype="int32"))
            builder.emit_func_output(made)
        narrow = narrow_filters.narrow_filters(builder.get(), Options().cpu, "default")
        assert narrow.script(show_meta=False).count("nn.conv2d(") == count


@pytest.mark.parametrize(
    ("taps", "channels", "target", "faster"),
    [
        (1, 256, "icelake-server", True),
        (3, 256, "icelake-server", False),
        (1, 8, "icelake-server", False),
        (1, 256, "haswell", False),
    ],
)
def test_bytes_are_taken_where_they_are_faster(taps: int, channels: int, target: str, faster: bool) -> None:
    problem: Problem = convolution(
        (1, 14, 14, channels),
        (taps, taps, channels, channels),
        strides=(1, 1),
        dilations=(1, 1),
        auto_pad="valid",
        dtype="u8s16u8",
        epilogue="scale-q(1,0)",
    )
    assert narrow_filters.is_faster(problem, Options(target).cpu, "default") == faster
