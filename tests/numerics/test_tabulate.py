"""Functions of one 8-bit number between quantizers: tables, each of whose entries is onnxruntime's."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

pytest.importorskip("onnxruntime")
from test_move_quantizers import answers
from test_network_integers import NAMES, Chains

from tvmconv.network.options import Options
from tvmconv.network.passes import run
from tvmconv.network.read.onnx.compare_quantized import find_wrong_quantizers
from tvmconv.network.read.onnx.reader import fix_shapes, read_onnx


def _gated(chains: Chains, x: str) -> str:
    return chains.node("Mul", x, _again(chains, chains.node("HardSigmoid", x)))


def _again(chains: Chains, x: str) -> str:
    """Return a tensor quantized and dequantized."""
    numbers = chains.const(np.float32(1 / 255)), chains.const(np.uint8(0))
    return chains.node("DequantizeLinear", chains.node("QuantizeLinear", x, *numbers), *numbers)


FUNCTIONS: dict[str, Callable[[Chains, str], str]] = {
    "hardswish": lambda chains, x: chains.node("HardSwish", x),
    "hardsigmoid": lambda chains, x: chains.node("HardSigmoid", x, alpha=0.3, beta=0.4),
    "sigmoid": lambda chains, x: chains.node("Sigmoid", x),
    "silu": lambda chains, x: chains.node("Mul", x, chains.node("Sigmoid", x)),
    "tanh": lambda chains, x: chains.node("Tanh", x),
    "leaky": lambda chains, x: chains.node("LeakyRelu", x, alpha=0.1),
    "requantized": lambda chains, x: chains.node("Identity", x),
    "gated": _gated,
    "affine": lambda chains, x: chains.node(
        "Div", chains.node("Sub", chains.const(np.float32(0.7)), x), chains.const(np.float32(3))
    ),
}
# Of one element, of less than a vector, and of what threads share.
SHAPES = ((1, 1, 1, 1), (1, 3, 5, 7), (1, 8, 67, 101))


@pytest.mark.parametrize("seed", range(2))
def test_tables_have_what_onnxruntime_rounds_to(seed: int, tmp_path: Path) -> None:
    draw, chains = random.Random(seed), Chains()
    for number, function in enumerate(FUNCTIONS.values()):
        x, kinds = "", [draw.choice((np.uint8, np.int8)) for _ in range(2)]
        for kind in kinds:
            bounds, scale = np.iinfo(kind), np.float32(draw.uniform(0.01, 0.1))
            numbers = chains.const(scale), chains.const(kind(draw.randint(bounds.min, bounds.max)))
            if x:
                x = chains.node("QuantizeLinear", x, *numbers)
            else:
                given = chains.input(list(SHAPES[(number + seed) % len(SHAPES)]), NAMES[np.dtype(kind)])
                x = function(chains, chains.node("DequantizeLinear", given, *numbers))
        chains.output(x, NAMES[np.dtype(kinds[-1])])
    source = chains.save(tmp_path)
    arrays, taken = answers(source, tmp_path)
    assert find_wrong_quantizers(fix_shapes(source), arrays, taken) == []
    assert _names(source) == {"relax.call_tir"}


def _names(source: str) -> set[str]:
    """Return the operators of a network after all passes."""
    found: set[str] = set()

    def note(expr: object) -> None:
        if isinstance(expr, relax.Call):
            found.add(str(expr.op.name))

    relax.analysis.post_order_visit(run(read_onnx(source), Options())["main"], note)
    return found


def test_what_reads_two_tensors_is_no_table(tmp_path: Path) -> None:
    chains = Chains()
    numbers = chains.const(np.float32(0.05)), chains.const(np.uint8(3))
    given = [chains.node("DequantizeLinear", chains.input([1, 4, 3, 3], 2), *numbers) for _ in range(2)]
    chains.output(chains.node("QuantizeLinear", chains.node("Mul", *given), *numbers), 2)
    assert "relax.quantize" in _names(chains.save(tmp_path))
