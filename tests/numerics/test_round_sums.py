"""Rounded sums of two tensors of 8 bits: of all pairs of numbers the bits that onnxruntime has without optimisations."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
from test_network_integers import NAMES, Chains, load
from tvm_ffi.structural import structural_equal

from tvmconv.frontends.onnx.session import open_session
from tvmconv.network.kernels.round_sums import round_sums
from tvmconv.network.options import Options
from tvmconv.network.passes import run
from tvmconv.network.read.onnx.reader import fix_shapes, read_onnx

SIZE = 256
BOUNDS: dict[str, Callable[[Chains, str], str]] = {
    "none": lambda chains, x: x,
    "relu": lambda chains, x: chains.node("Relu", x),
    "clip": lambda chains, x: chains.node("Clip", x, *(chains.const(np.float32(bound)) for bound in (-100, 90))),
}


def _write(folder: Path, seed: int) -> tuple[str, dict[str, np.ndarray]]:
    """Write sums and differences of drawn scales; return the file, and all pairs of numbers for each."""
    draw, chains, arrays = random.Random(seed), Chains(), {}
    for number, bound in enumerate(BOUNDS.values()):
        for kind in ("Add", "Sub"):
            ends = []
            for axis in range(2):
                dtype = np.dtype(draw.choice((np.uint8, np.int8)))
                bounds = np.iinfo(dtype)
                numbers = (
                    chains.const(np.float32(draw.uniform(0.01, 0.1))),
                    chains.const(dtype.type(draw.randint(bounds.min, bounds.max))),
                )
                given = chains.input([1, 2, SIZE, SIZE // 2], NAMES[dtype])
                every = np.arange(bounds.min, bounds.max + 1).astype(dtype)
                pairs = np.meshgrid(every, every, indexing="ij")[axis]
                arrays[given] = pairs.reshape(1, 2, SIZE, SIZE // 2)
                ends.append(chains.node("DequantizeLinear", given, *numbers))
            total = bound(chains, chains.node(kind, *ends))
            least = np.dtype((np.uint8, np.int8)[number % 2])
            zero = 0 if kind == "Add" and bound is BOUNDS["relu"] else draw.randint(0, 100)
            numbers = chains.const(np.float32(draw.uniform(0.02, 0.1))), chains.const(least.type(zero))
            chains.output(chains.node("QuantizeLinear", total, *numbers), NAMES[least])
    return chains.save(folder), arrays


@pytest.mark.parametrize("seed", range(2))
def test_all_pairs_round_as_operators_do(seed: int, tmp_path: Path) -> None:
    source, arrays = _write(tmp_path, seed)
    network = load(source, tmp_path)
    got, expected = network(**arrays), open_session(fix_shapes(source), "ORT_DISABLE_ALL").run(None, arrays)
    for own, other in zip(got.values(), expected, strict=True):
        np.testing.assert_array_equal(own, other)
    before = run(read_onnx(source), Options(), "kernels")
    assert not structural_equal(before, round_sums(before))
