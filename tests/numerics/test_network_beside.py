"""Branches of a network whose loops are one for many threads: the bits are those of one thread."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("tvm")
from tvm import relax

from tests.numerics.test_network import module
from tvmconv.network.compile import build, write
from tvmconv.runtime.networks.network import load_network

SHAPE = (1, 48, 20, 20)


def branches(builder: relax.BlockBuilder, data: Any) -> Any:
    """Return what two layers and a pool make of the same data."""
    rng = np.random.default_rng(66)

    def convolved(of: Any, inputs: int, outputs: int, taps: int) -> Any:
        filters = relax.const(rng.standard_normal((outputs, inputs, taps, taps), dtype=np.float32))
        made = builder.emit(relax.op.nn.conv2d(of, filters, padding=(taps // 2, taps // 2)))
        return builder.emit(relax.op.nn.relu(made))

    pooled = builder.emit(relax.op.nn.max_pool2d(data, (3, 3), padding=(1, 1)))
    ends = [convolved(data, 48, 64, 3), convolved(data, 48, 32, 1), pooled]
    return builder.emit(relax.op.concat(ends, 1))


def test_bits_are_those_of_one_thread(tmp_path: Path) -> None:
    path = tmp_path / "branches.so"
    with mock.patch("tvmconv.network.compile.write", wraps=write) as written:
        build(module(branches, [SHAPE]), path)
    assert any(step.beside for step in written.call_args.args[0].plan.steps)
    network = load_network(path)
    given = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)
    expected = np.empty((1, 144, 20, 20), np.float32)
    network.run([given.ctypes.data], [expected.ctypes.data], threads=1)
    for threads, openmp in product((2, 9, 16, 64, 200), (False, True)):
        out = np.full_like(expected, np.nan)
        network.run([given.ctypes.data], [out.ctypes.data], threads=threads, openmp=openmp)
        np.testing.assert_array_equal(out, expected)
