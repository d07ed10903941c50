"""What reductions, pools and pads make of data that is nothing but infinities, NaN, or the largest and least of numbers, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch.nn import functional as F  # noqa: E402

from tests.numerics.test_network_special import Operator, check  # noqa: E402
from tests.numerics.test_network_torch_operators import wrong  # noqa: E402

INF, NAN, MOST, LEAST = float("inf"), float("nan"), float(np.finfo(np.float32).max), 1e-40
# Of which rows are drawn: one alone, or some.
NUMBERS = (-INF, INF, NAN, -MOST, MOST, LEAST, -0.0, 0.0, -2.5, 3.0)
AMONG = [(each,) for each in NUMBERS[:7]] + [
    (-INF, NAN),
    (-INF, -MOST),
    (INF, MOST),
    (-INF, 3.0),
    (-0.0, -INF),
    NUMBERS,
    (-2.5, 3.0),
]


def drawn(shape: tuple[int, ...], seed: int) -> Any:
    """Return a tensor whose first axis has a row for each of AMONG, with that number where all others are neutral."""
    rng = np.random.default_rng(seed)
    rows = [rng.choice(np.array(each, np.float32), shape) for each in AMONG]
    return torch.from_numpy(np.stack(rows))


def along(axis: Any) -> dict[str, Callable[[Any], Any]]:
    """Return reductions along an axis."""
    return {
        "amax": lambda x: x.amax(axis),
        "amin": lambda x: x.amin(axis),
        "argmax": lambda x: x.argmax(axis),
        "argmin": lambda x: x.argmin(axis),
        "max": lambda x: x.max(axis)[0],
        "softmax": lambda x: x.softmax(axis),
        "log_softmax": lambda x: x.log_softmax(axis),
        "logsumexp": lambda x: x.logsumexp(axis),
        "topk": lambda x: x.topk(2, axis)[0],
        "sort": lambda x: x.sort(axis)[0],
        "sum": lambda x: x.sum(axis),
        "mean": lambda x: x.mean(axis),
        "prod": lambda x: x.prod(axis),
        "norm": lambda x: torch.linalg.vector_norm(x, INF, axis),
        "any": lambda x: x.any(axis),
    }


ALONE: dict[str, Callable[[Any], Any]] = {
    "differs": lambda x: x != 0,
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp(min=-INF),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "maximum": lambda x: torch.maximum(x, x.flip(-1)),
    "minimum": lambda x: torch.minimum(x, x.flip(-1)),
    "pad": lambda x: F.pad(x, (1, 2), value=-INF),
}
TABLES = {
    "rows": ({**ALONE, **along(-1)}, (3, 19)),
    "vectors": (along(-1), (2, 32)),
    "short": (along(-1), (3, 5)),
    "inner": (along(1), (19, 16)),
}


@pytest.mark.parametrize("name", TABLES)
def test_along_axes(name: str, tmp_path: Path) -> None:
    functions, shape = TABLES[name]
    data = drawn(shape, 1)
    assert not wrong({key: (each, (data,)) for key, each in functions.items()}, torch.float32, tmp_path)


@pytest.mark.parametrize("layout", ["NCX", None])
def test_maximum_pools_of_onnx(layout: str | None, tmp_path: Path) -> None:
    """Of data that is one number everywhere, which pads must not exceed, and of windows that reach beyond both."""
    operators = []
    for rank in (1, 2, 3):
        pool = getattr(F, f"max_pool{rank}d")
        for dtype in (np.float32, np.float16, np.int8, np.uint8):
            low = -INF if np.dtype(dtype).kind == "f" else np.iinfo(dtype).min
            data = np.full((2, 3, *[7, 8, 9][:rank]), low, dtype)
            data[1, 1] += dtype(3)

            def right(x: Any, pool: Any = pool, how: Any = None) -> Any:
                wide = torch.from_numpy(x.astype(np.float32))
                return pool(wide, 3, 2, 1, dilation=how[0], ceil_mode=how[1]).numpy().astype(x.dtype)

            for dilation, ceil in ((1, 0), (1, 1), (2, 0)) if dtype == np.float32 else ((1, 0),):
                given = {"kernel_shape": [3] * rank, "strides": [2] * rank, "pads": [1] * 2 * rank, "ceil_mode": ceil}
                given["dilations"] = [dilation] * rank
                operators.append(Operator("MaxPool", given, [data], partial(right, how=(dilation, bool(ceil)))))
    check(operators, tmp_path, layout)
