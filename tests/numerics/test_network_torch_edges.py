"""Numbers at the ends of ATen's operators, and calls that few programs have, compared with PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from near import assert_near  # noqa: E402
from test_network_torch_operators import INF, NAN, Every, wrong  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.network.read.torch.reader import UnreadError, read_torch  # noqa: E402

F = torch.nn.functional


def test_edges_are_pytorchs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, p, s = torch.randn(2, 4, 3, 2), torch.rand(3, 4) + 0.1, torch.randn(3, 4)
    s[0, 0], s[1, 1], s[2, 2] = NAN, INF, -INF
    ends, i = torch.tensor([-(2**31), 2**31 - 1, -7, 7], dtype=torch.int32), torch.arange(-6, 6)
    functions = {
        "truncated division": (lambda a: torch.div(a, 2, rounding_mode="trunc"), (ends,)),
        "angles of integers": (torch.atan2, (i, i + 1)),
        "truth": (lambda a: (a.bool(), a.logical_not(), a.bfloat16().bool(), a.half().bool()), (s,)),
        "halves of f64": (lambda a: (a.double() / 2).round(), (i,)),
        "long hypotenuse": (lambda a, c: torch.hypot(a * 1e30, c * 1e30), (s, p)),
        "short hypotenuse": (lambda a: torch.hypot(a * 1e-30, a * 0), (p,)),
        "search of NaN": (lambda a, v: torch.searchsorted(a.sort(-1)[0], v), (p, s)),
        "variance by 0": (lambda a: a.var(1, correction=4), (x,)),
        "truth of bytes": (lambda a: (a.byte().any(), a.byte().any(0), a.any(0)), (i,)),
        "not less than NaN": (
            lambda a, c: [(c < a).logical_not(), (a == c).logical_not(), torch.where((c >= a).logical_not(), a, 0)],
            (p, s),
        ),
        "not in": (lambda a, v: torch.isin(v, a, invert=True), (p, s)),
        "one index": (lambda a, j: a.index_select(1, j), (x, torch.tensor(2))),
    }
    assert wrong(functions, torch.float32, tmp_path) == []


def test_functions_of_f64_that_pytorch_computes() -> None:
    """TVM has no hyperbolic sines of f64, our erfc is f32's; what is beside them is compiled."""

    class Functions(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x * 2 + 1
            return torch.sin(y), torch.sinh(y), torch.cosh(y), torch.erfc(y), torch.special.log_ndtr(y)

    x = torch.linspace(-2, 2, 33, dtype=torch.float64)
    model = Functions().eval()
    fast = tvmconv.torch.optimize(model, x, progress=None)
    torch.testing.assert_close(
        fast(x), Functions()(x), rtol=1e-13, atol=0
    )  # tolerance: functions of single numbers in f64
    left = {row.computes for row in tvmconv.torch.report(fast) if row.by == "PyTorch"}
    assert any("sinh" in each for each in left) and not any("mul" in each for each in left)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_groups_behind_a_volume_without_batch(dtype: Any) -> None:
    """Planes of a volume become channels, whose batch of one is moved behind the others."""
    torch.manual_seed(0)
    parts = torch.nn.ConvTranspose3d(1, 1, (4, 3, 2), stride=(1, 2, 2), padding=1), torch.nn.GroupNorm(7, 7)
    model, x = torch.nn.Sequential(*parts).eval().to(dtype), torch.randn(1, 6, 16, 8).to(dtype)
    assert_near(tvmconv.torch.compile(model, x, progress=None)(x), model(x), summed=24)


def test_mean_pools_of_integers_by_a_divisor_are_left_to_pytorch() -> None:
    table = {"pool": (lambda a: F.avg_pool2d(a, 2, divisor_override=3), (torch.arange(16).view(1, 1, 4, 4),))}
    program = torch.export.export(Every(table), ({"pool": table["pool"][1]},), strict=False)
    with pytest.raises(UnreadError, match="of integers"):
        read_torch(program)
