"""Calls by position and by name, whichever the example was."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")

from near import assert_near  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import TvmconvWarning  # noqa: E402


class _Scaled(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: Any, y: Any = None, *, scale: float = 2.0, **more: Any) -> Any:
        z = self.linear(x) * scale
        return z if y is None else z - y * more.get("weight", 1.0)


def test_calls_by_position_and_by_name() -> None:
    model = _Scaled().eval()
    x, y = torch.randn(2, 2, 8)
    scale = _Scaled.forward.__kwdefaults__["scale"]
    for example, calls in (
        (x, [((x,), {}), ((), {"x": x}), ((x, None), {}), ((), {"y": None, "x": x, "scale": scale})]),
        ({"y": y, "x": x}, [((x, y), {}), ((x,), {"y": y}), ((), {"y": y, "x": x}), ((x, y), {"scale": scale})]),
        (
            {"x": x, "y": y, "weight": 3.0},
            [((x, y), {"weight": 3.0}), ((x,), {"weight": 3.0, "y": y}), ((), {"weight": 3.0, "x": x, "y": y})],
        ),
    ):
        fast = tvmconv.torch.optimize(model, example, progress=None)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error", TvmconvWarning)  # which says that PyTorch computed it
            for args, kwargs in calls:
                assert_near(fast(*args, **kwargs).numpy(), model(*args, **kwargs).numpy())
        with torch.no_grad(), pytest.warns(TvmconvWarning, match="not compiled for"):
            assert_near(fast(x, y, scale=3.0).numpy(), model(x, y, scale=3.0).numpy())
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            fast(y=y)
