"""Resizes between other operators, beside PyTorch's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch.nn import functional as F  # noqa: E402
from tvm import relax  # noqa: E402

from tests.numerics.test_network import module  # noqa: E402
from tvmconv.network.compile import build  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

# The batch, channels, height and width of the data; the size; PyTorch's mode, and whether corners are aligned.
CASES: list[tuple[tuple[int, ...], tuple[int, int], str, bool | None]] = [
    ((1, 19, 7, 9), (20, 13), "bilinear", False),
    ((2, 16, 8, 8), (32, 16), "bilinear", True),
    ((1, 6, 9, 11), (4, 5), "bilinear", False),
    ((2, 8, 5, 6), (1, 1), "bilinear", False),
    ((1, 4, 1, 3), (5, 12), "bilinear", True),
    ((1, 16, 6, 7), (18, 14), "nearest", None),
]
op = relax.op


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_resizes(layout: str, tmp_path: Path) -> None:
    rng, last = np.random.default_rng(0), layout == "NHWC"
    arrays = [rng.integers(-9, 10, shape).astype(np.float32) for shape, *_ in CASES]
    given = [np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if last else array for array in arrays]

    def make(builder: Any, *data: Any) -> Any:
        outputs = []
        for each, (_, size, mode, corners) in zip(data, CASES, strict=True):
            how = {"layout": layout, "method": "linear", "coordinate_transformation_mode": "half_pixel"}
            if mode == "nearest":
                how = {"layout": layout, "method": "nearest_neighbor", "rounding_method": "floor"}
                how["coordinate_transformation_mode"] = "asymmetric"
            if corners:
                how["coordinate_transformation_mode"] = "align_corners"
            resized = builder.emit(op.image.resize2d(builder.emit(op.nn.relu(each)), size, **how))
            outputs.append(builder.emit(op.subtract(resized, relax.const(1.0))))
        return builder.emit(relax.Tuple(outputs))

    build(module(make, [each.shape for each in given]), tmp_path / "network.so")
    answers = load_network(tmp_path / "network.so")(**{f"x{at}": each for at, each in enumerate(given)}).values()
    for answer, array, (_, size, mode, corners) in zip(answers, arrays, CASES, strict=True):
        right = F.interpolate(torch.from_numpy(array).relu(), size, mode=mode, align_corners=corners).numpy() - 1
        assert_near(answer.transpose(0, 3, 1, 2) if last else answer, right, summed=4, magnitude=9.0 * max(size))
