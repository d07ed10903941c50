"""Average pools of a plan, channels last, beside PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch.nn import functional as F  # noqa: E402
from tvm import relax  # noqa: E402

from tests.numerics.test_network import module  # noqa: E402
from tvmconv.relax.compiling import build  # noqa: E402
from tvmconv.runtime.network import load_network  # noqa: E402

# By the number of dimensions; the batch and channels come first.
SHAPES = {1: (2, 19, 23), 2: (2, 37, 13, 10), 3: (1, 5, 6, 7, 9)}
LAYOUTS = {1: "NWC", 2: "NHWC", 3: "NDHWC"}
AVERAGES = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
OPERATORS = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}
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
]


def test_average_pools_are_pytorchs(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    given = {rank: rng.integers(-9, 10, shape).astype(np.float32) for rank, shape in SHAPES.items()}

    def make(builder: Any, *data: Any) -> Any:
        outputs = []
        for rank, window, stride, pad, ceil, counts in POOLS:
            made = OPERATORS[rank](
                data[rank - 1], window, stride, pad, ceil_mode=ceil, layout=LAYOUTS[rank], count_include_pad=counts
            )
            outputs.append(builder.emit(made))
        return builder.emit(relax.Tuple(outputs))

    last = {rank: np.ascontiguousarray(np.moveaxis(array, 1, -1)) for rank, array in given.items()}
    path = tmp_path / "pools.so"
    build(module(make, [last[rank].shape for rank in SHAPES]), path)
    answers = load_network(path)(**{f"x{rank - 1}": array for rank, array in last.items()}).values()
    for answer, (rank, window, stride, pad, ceil, counts) in zip(answers, POOLS, strict=True):
        right = AVERAGES[rank](torch.from_numpy(given[rank]), window, stride, pad, ceil, counts).numpy()
        np.testing.assert_array_max_ulp(np.moveaxis(answer, -1, 1), right, 1)  # TVM multiplies by a reciprocal
