"""Products of two tensors of free extents whose batches are broadcast to each other, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import tvmconv.torch  # noqa: E402

SIZES = (2, 3), (5, 1), (4, 33)


class Products(nn.Module):
    """Batches of as many matrices each, whose broadcast has more: of fixed extents, of free ones, and mixed."""

    def forward(self, x: Any) -> Any:
        columns = x.transpose(-1, -2)
        two = torch.stack([x[0], x[1]])
        return (
            x[:, None] @ columns[None],
            two[:, None] @ two[None].transpose(-1, -2),
            two[:, None] @ columns[None],
            x[:, None] @ columns[:, None],
        )


def test_batches_are_broadcast() -> None:
    def numbers(batch: int, rows: int) -> Any:
        generator = torch.Generator().manual_seed(batch)
        return torch.randint(-4, 5, (batch, rows, 6), generator=generator).float()

    free = {"x": {0: Dim("n", min=2), 1: Dim("m")}}
    model = Products().eval()
    network = tvmconv.torch.compile(model, numbers(3, 7), dynamic_shapes=free, progress=None)
    for size in SIZES:
        for found, right in zip(network(numbers(*size)), model(numbers(*size)), strict=True):
            assert torch.equal(found, right), size
