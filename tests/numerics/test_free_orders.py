"""Scans, sorts, gathers and scatters of free extents, along a free axis and along a fixed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import model, save, value
from near import assert_near
from numerics.test_network_free import check, free_network, integers
from onnx import helper, numpy_helper

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import tvmconv.torch  # noqa: E402

SIZES = ((1, 4, 5), (2, 7, 13), (3, 33, 70))
node = helper.make_node


class Orders(nn.Module):
    """Whole numbers in floating point, so that sums are exact, and equal ones come often."""

    def forward(self, x: Any) -> Any:
        x = (x * 4).round()
        small = x.clamp(1, 2)
        place = (x[:, 1:] > 0).long()
        whole = place.sum(1, True)
        last = x.permute(0, 2, 3, 1).repeat(1, 1, 1, 11)  # rows long enough for blocks
        scans = [x.cumsum(axis) for axis in range(4)] + [small.cumprod(-1), (x > 0).cumsum(2), last.cumsum(-1)]
        sorts = [each for axis in (1, 2, 3) for each in (*x.sort(dim=axis, stable=True), x.topk(2, axis)[0])]
        others = [x.argsort(dim=-1, descending=True, stable=True), x.kthvalue(3, 3)[0], x.median(1)[0]]
        moved = [x.gather(1, place), x.gather(2, whole), x.scatter(1, whole, 7.0), x.scatter_add(3, place, x[:, :2])]
        return scans, sorts, others, moved


def test_like_pytorch() -> None:
    def image(batch: int, *size: int) -> Any:
        return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(0))

    free = {"x": {0: Dim("b"), 2: Dim("h", min=4), 3: Dim("w", min=4)}}
    orders = Orders().eval()
    network = tvmconv.torch.compile(orders, image(2, 8, 12), dynamic_shapes=free, progress=None)
    for size in SIZES:
        for found, right in zip(network(image(*size)), orders(image(*size)), strict=True):
            for one, other in zip(found, right, strict=True):
                assert one.dtype == other.dtype
                assert_near(one, other, summed=1)


def test_like_onnxruntime(tmp_path: Path) -> None:
    """Sums that leave out each element itself, or go back, and the first of a sort."""
    flags = [(exclusive, back) for exclusive in (0, 1) for back in (0, 1)]
    nodes = [
        *(
            node("CumSum", ["x", f"axis{axis}"], [f"s{axis}{exclusive}{back}"], exclusive=exclusive, reverse=back)
            for axis in (1, 3)
            for exclusive, back in flags
        ),
        node("TopK", ["x", "two"], ["t", "ti"], axis=2, largest=0),
        node("TopK", ["x", "two"], ["u", "ui"], axis=1),
    ]
    outputs = [value(name, None) for each in nodes for name in each.output if name not in ("ti", "ui")]
    weights = [numpy_helper.from_array(np.int64(axis), f"axis{axis}") for axis in (1, 3)]
    shape = [value("x", ["n", 3, "h", "w"])]
    source = save(model(nodes, shape, outputs, weights=[*weights, integers("two", 2)]), tmp_path)
    network = free_network(source, "?x3x?x?", tmp_path)
    check(source, network, [(batch, 3, *size) for batch, *size in SIZES])
    with pytest.raises(ValueError, match="topk takes more elements than the axis has in this call"):
        network(x=np.zeros((1, 3, 1, 5), np.float32))
