"""PyTorch models of free extents that scan along them, write at places, cut windows and put them together, and sample between pixels."""

from __future__ import annotations

from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import SourceError  # noqa: E402

FREE = ({0: Dim("b", min=1), 2: Dim("h", min=2, max=500), 3: Dim("w", min=3, max=500)},)
SIZES = ((1, 4, 2, 3), (2, 4, 37, 5), (3, 4, 8, 8), (1, 4, 31, 64), (5, 4, 13, 7))


def images(*shape: int) -> Any:
    """Return integers of few values, some of them not numbers, and the same numbers without these."""
    known = torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(sum(shape))).float()
    return torch.where(known == 4, float("nan"), known), known


class Exact(nn.Module):
    """What moves numbers, or compares them."""

    def forward(self, unknown: Any, data: Any) -> Any:
        """Return tensors of which each bit is known."""
        scans = [torch.cummax(unknown, 3), torch.cummin(unknown, 2), torch.cummax(data.long(), 3)]
        written, chosen, rows = data.clone(), torch.zeros_like(data), torch.arange(data.shape[0])
        written[written > 0] = 0
        written[:, [0, 2]] = data[:, [1, 3]]
        written[..., 1] = 5
        chosen[rows, rows % 4] = 1
        windows = functional.unfold(data, 3, padding=1)
        folded = functional.fold(windows, data.shape[2:], 3, padding=1)
        wide = functional.interpolate(data, scale_factor=2)
        sides = {"kernel_size": (4, 2), "stride": (1, 2), "dilation": (2, 1), "padding": (3, 0)}
        again = functional.fold(functional.unfold(wide, **sides), wide.shape[2:], **sides)
        frames = data.flatten(2).unfold(2, 4, 2)
        return *(part for each in scans for part in each), written, chosen, folded, again, frames


class Sampled(nn.Module):
    """What computes between pixels, and logarithms of sums."""

    def forward(self, data: Any) -> Any:
        """Return tensors that are rounded."""
        height, width = data.shape[2:]
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        flow = torch.stack(
            [2 * (x + data[:, 0]) / max(width - 1, 1) - 1, 2 * (y + data[:, 1]) / max(height - 1, 1) - 1], -1
        )
        sampled = [
            functional.grid_sample(data, flow, align_corners=True),
            functional.grid_sample(data, flow, padding_mode="border", align_corners=True),
            functional.grid_sample(data, data[:, 2:, :1].permute(0, 2, 3, 1) / 4, align_corners=False),
        ]
        return *sampled, torch.logcumsumexp(data, 3), torch.logcumsumexp(data * 30, 2)


def test_numbers_that_are_moved() -> None:
    fast = tvmconv.torch.compile(Exact().eval(), images(2, 4, 12, 16), dynamic_shapes=FREE * 2, progress=None)
    for shape in SIZES:
        given = images(*shape)
        for found, right in zip(fast(*given), Exact()(*given), strict=True):
            assert found.dtype == right.dtype
            torch.testing.assert_close(found, right, rtol=0, atol=0, equal_nan=True)


def test_numbers_between() -> None:
    fast = tvmconv.torch.compile(Sampled().eval(), images(2, 4, 12, 16)[1], dynamic_shapes=FREE, progress=None)
    for shape in SIZES:
        data = images(*shape)[1]
        for found, right in zip(fast(data), Sampled()(data), strict=True):
            assert_near(found, right, summed=500, layers=2)  # coordinates of tens are in f32, too


def test_reflection_at_free_edges_is_refused() -> None:
    class Reflected(nn.Module):
        def forward(self, data: Any) -> Any:
            return functional.grid_sample(
                data, data[:, :2].permute(0, 2, 3, 1), padding_mode="reflection", align_corners=True
            )

    with pytest.raises(SourceError, match="reflected planes must have fixed extents above 1"):
        tvmconv.torch.compile(Reflected().eval(), images(2, 4, 12, 16)[1], dynamic_shapes=FREE, progress=None)


def test_coordinates_of_bf16_are_in_f32() -> None:
    """Numbers between pixels are rounded once; PyTorch's coordinates are in bf16, and its numbers elsewhere."""

    class Warped(nn.Module):
        def forward(self, data: Any, grid: Any) -> Any:
            return functional.grid_sample(data, grid, align_corners=False)

    draw = torch.Generator().manual_seed(0)
    data = torch.randn(1, 4, 64, 64, generator=draw).bfloat16()
    grid = (torch.rand(1, 64, 64, 2, generator=draw) * 2.2 - 1.1).bfloat16()
    right = Warped()(data.double(), grid.double())
    found = tvmconv.torch.compile(Warped().eval(), (data, grid), progress=None)(data, grid)
    assert_near(found.float(), right.bfloat16().float(), summed=4, dtype="bfloat16")
    assert (Warped()(data, grid).double() - right).norm() > 20 * (found.double() - right).norm()
