"""Sums of many numbers that are all alike, so that all roundings of an accumulator go one way, along every axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
from tvm import relax

from tests.relax_modules import relax_module
from tvmconv.network.compile import build
from tvmconv.runtime.networks.network import load_network

op = relax.op
# Of the sum of magnitudes: what docs/promises.md says of one axis, and of each more.
BOUND = 2.0**-12
# Shapes and axes, whose extents blocks divide or not.
CASES: list[tuple[tuple[int, ...], list[int]]] = [
    ((2**24 + 32,), [0]),
    ((70001, 3), [0]),
    ((2, 2**18, 4), [1]),
    ((2, 70001), [1]),
    ((90, 70, 60, 3), [0, 1, 2]),
    ((130, 5, 140, 3), [0, 2]),
    ((2, 3, 300, 301), [2, 3]),
]


def network(make: Any, arrays: list[Any], folder: Path) -> list[Any]:
    """Return what a network makes of arrays."""
    module = relax_module(make, [each.shape for each in arrays], [str(each.dtype) for each in arrays])
    build(module, folder / "network.so", layout="NCX")
    answers = load_network(folder / "network.so")(**{f"x{at}": each for at, each in enumerate(arrays)})
    return [each.astype(np.float64) for each in answers.values()]


def test_numbers_all_alike(tmp_path: Path) -> None:
    number = np.float32(0.1)
    arrays = [np.full(shape, number) for shape, _ in CASES] + [np.full((9000, 3), number, np.float16)]
    axes = [*(axes for _, axes in CASES), [0]]

    def make(builder: Any, *given: Any) -> Any:
        return relax.Tuple([builder.emit(op.sum(each, along)) for each, along in zip(given, axes, strict=True)])

    for answer, array, along in zip(network(make, arrays, tmp_path), arrays, axes, strict=True):
        right = array.astype(np.float64).sum(tuple(along))
        allowed = BOUND * len(along) if array.dtype == np.float32 else 2.0**-10
        assert np.abs(answer / right - 1).max() <= allowed
        assert array.dtype == np.float16 or np.abs(answer / right - 1).max() <= 2e-5


def test_what_sums(tmp_path: Path) -> None:
    """Means, variances, norms, pools, softmaxes and normalizations of many numbers: half of them 100, half 102, and ones."""
    rows = np.tile(np.array([100, 102], np.float32), 50000).reshape(1, 1, -1)
    last = np.ascontiguousarray(np.moveaxis(np.concatenate([rows, rows], 1), 1, 2))
    ones = np.ones((1, 70001), np.float32)
    plane = np.full((1, 2, 300, 200), np.float32(0.1))

    def make(builder: Any, first: Any, last: Any, ones: Any, plane: Any) -> Any:
        one, zero = (relax.const(np.full(size, each, np.float32)) for size, each in ((1, 1), (1, 0)))
        two, none = (relax.const(np.full(2, each, np.float32)) for each in (1, 0))
        made = [
            op.mean(last, 1),
            op.variance(last, 1),
            op.std(first, 2),
            op.nn.instance_norm(first, one, zero, 1, [2], 1e-5),
            op.nn.group_norm(last, two, none, 1, 2, [1], 1e-5),
            op.nn.softmax(ones, -1),
            op.nn.log_softmax(ones, -1),
            op.nn.adaptive_avg_pool2d(plane, 1),
        ]
        return relax.Tuple([builder.emit(each) for each in made])

    mean, variance, deviation, instance, group, share, logarithm, pooled = network(
        make, [rows, last, ones, plane], tmp_path
    )
    np.testing.assert_allclose(mean, 101, rtol=1e-5)
    np.testing.assert_allclose(variance, 1, rtol=1e-4)
    np.testing.assert_allclose(deviation, 1, rtol=1e-4)
    np.testing.assert_allclose(instance, rows - 101, atol=1e-3)
    np.testing.assert_allclose(group, last - 101, atol=1e-3)
    np.testing.assert_allclose(share, 1 / 70001, rtol=1e-5)
    np.testing.assert_allclose(logarithm, -np.log(70001), rtol=1e-6)
    np.testing.assert_allclose(pooled, float(np.float32(0.1)), rtol=2e-5)
