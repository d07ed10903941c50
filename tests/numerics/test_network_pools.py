"""Pools of a plan, channels last and first, of f32 and of bf16, beside PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvmconv.accuracy import UNIT

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from ml_dtypes import bfloat16  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from tvm import relax  # noqa: E402

from tests.numerics.test_network import module  # noqa: E402
from tvmconv.network.compile import build  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

# By the number of dimensions; the batch and channels come first.
SHAPES = {1: (2, 19, 23), 2: (2, 37, 13, 10), 3: (1, 5, 6, 7, 9)}
LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
FIRST = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
# Dimensions, window, stride, pad, whether sizes are rounded up, and whether pads count.
POOLS: list[tuple[int, Any, Any, Any, bool, bool]] = [
    (2, (3, 3), (1, 1), (1, 1), False, False),
    (2, (3, 3), (1, 1), (1, 1), False, True),
    (2, (2, 2), (2, 2), (0, 0), False, True),
    (2, (2, 3), (2, 1), (1, 0), True, False),
    (2, (3, 2), (3, 4), (1, 1), True, True),
    (2, (13, 10), (1, 1), (0, 0), False, True),
    (1, (4,), (3,), (2,), False, False),
    (1, (5,), (2,), (0,), True, True),
    (3, (2, 3, 3), (2, 1, 2), (1, 1, 0), False, True),
    (3, (3, 1, 2), (1, 2, 2), (1, 0, 1), True, False),
    (2, (7, 9), (1, 5), (3, 4), False, False),
    (1, (1,), (7,), (0,), False, True),
]
# Dimensions, shape, window, stride, pad, dilation, and whether sizes are rounded up: rows shorter than a vector, of some vectors and
# some numbers more, of more columns than are made at a time, and windows further apart than these.
LARGEST: list[tuple[int, Any, Any, Any, Any, Any, bool]] = [
    (2, (1, 3, 7, 7), (3, 3), (1, 1), (1, 1), (1, 1), False),
    (2, (2, 5, 35, 57), (3, 3), (2, 2), (1, 1), (1, 1), True),
    (2, (1, 96, 30, 33), (5, 5), (1, 1), (2, 2), (1, 1), False),
    (2, (1, 4, 28, 70), (2, 4), (3, 4), (1, 2), (2, 1), True),
    (2, (1, 2, 14, 40), (3, 3), (1, 1), (0, 0), (3, 5), False),
    (1, (2, 3, 9001), (3,), (1,), (1,), (1,), False),
    (1, (1, 3, 9001), (4,), (37,), (2,), (300,), True),
    (1, (1, 2, 9001), (2,), (1,), (0,), (5000,), False),
    (3, (1, 3, 6, 17, 18), (3, 3, 3), (1, 2, 1), (1, 1, 1), (1, 1, 1), False),
    (3, (2, 2, 5, 4, 20), (1, 1, 2), (1, 1, 2), (0, 0, 0), (1, 1, 1), False),
]


def laid(array: Any, layout: Any) -> Any:
    """Return an array channels first, or last, if the layout is such a one."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if layout is LAST else array


def answers_of(make: Any, arrays: list[Any], layout: Any, path: Path) -> list[Any]:
    """Return what a network makes of arrays that are channels first, as its answers are."""
    given = [laid(array, layout) for array in arrays]
    build(module(make, [each.shape for each in given], str(given[0].dtype)), path)
    answers = load_network(path)(**{f"x{at}": each for at, each in enumerate(given)}).values()
    return [np.moveaxis(each, -1, 1) if layout is LAST else each for each in answers]


@pytest.mark.parametrize("layout", [LAST, FIRST], ids=["NXC", "NCX"])
def test_average_pools_are_pytorchs(layout: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-9, 10, shape).astype(np.float32) for shape in SHAPES.values()]

    def make(builder: Any, *data: Any) -> Any:
        outputs = []
        for rank, window, stride, pad, ceil, counts in POOLS:
            operator = getattr(relax.op.nn, f"avg_pool{rank}d")
            how = {"ceil_mode": ceil, "layout": layout[rank], "count_include_pad": counts}
            outputs.append(builder.emit(operator(data[rank - 1], window, stride, pad, **how)))
        return builder.emit(relax.Tuple(outputs))

    answers = answers_of(make, arrays, layout, tmp_path / "pools.so")
    for answer, (rank, *how) in zip(answers, POOLS, strict=True):
        right = getattr(F, f"avg_pool{rank}d")(torch.from_numpy(arrays[rank - 1]), *how).numpy()
        np.testing.assert_allclose(answer, right, rtol=2 * UNIT["float32"])  # TVM multiplies by a reciprocal


@pytest.mark.parametrize("layout", [LAST, FIRST], ids=["NXC", "NCX"])
@pytest.mark.parametrize("dtype", [np.float32, bfloat16], ids=["f32", "bf16"])
def test_maximum_pools_are_pytorchs(dtype: Any, layout: Any, tmp_path: Path) -> None:
    rng, arrays = np.random.default_rng(0), []
    for _, shape, *_ in LARGEST:
        array, chance = rng.integers(-9, 10, shape).astype(np.float32), rng.random(shape)
        array[chance < 0.02], array[(chance > 0.02) & (chance < 0.1)] = np.nan, -np.inf
        arrays.append(array.astype(dtype))

    def make(builder: Any, *data: Any) -> Any:
        outputs = []
        for each, (rank, _, window, stride, pad, dilation, ceil) in zip(data, LARGEST, strict=True):
            operator = getattr(relax.op.nn, f"max_pool{rank}d")
            outputs.append(builder.emit(operator(each, window, stride, pad, dilation, ceil, layout=layout[rank])))
        return builder.emit(relax.Tuple(outputs))

    answers = answers_of(make, arrays, layout, tmp_path / "pools.so")
    for answer, array, (rank, _, *how) in zip(answers, arrays, LARGEST, strict=True):
        right = getattr(F, f"max_pool{rank}d")(torch.from_numpy(array.astype(np.float32)), *how).numpy()
        np.testing.assert_array_equal(answer.astype(np.float32), right)


@pytest.mark.parametrize("layout", [LAST, FIRST], ids=["NXC", "NCX"])
def test_averages_of_bf16_are_rounded_once(layout: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    array = rng.standard_normal((2, 19, 13, 37)).astype(bfloat16)
    array[0, 0, 0, 0] = np.nan

    def make(builder: Any, data: Any) -> Any:
        pooled = builder.emit(relax.op.nn.avg_pool2d(data, (3, 3), (1, 2), (1, 1), layout=layout[2]))
        how = {"layout": layout[2], "ceil_mode": True}
        return builder.emit(relax.op.nn.avg_pool2d(pooled, (2, 2), (2, 2), **how))

    (answer,) = answers_of(make, [array], layout, tmp_path / "pools.so")
    right = torch.from_numpy(array.astype(np.float32))
    for how in (((3, 3), (1, 2), (1, 1), False, False), ((2, 2), (2, 2), (0, 0), True, False)):
        right = F.avg_pool2d(right, *how).bfloat16().float()
    np.testing.assert_array_equal(answer.astype(np.float32), right.numpy())
