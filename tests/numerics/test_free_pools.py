"""Pools of free extents: pads by SAME, sizes that are rounded up, averages with and without pads, all types."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import onnx
import pytest
from models import model, save, value
from near import assert_near
from numerics.test_network_free import check, free_network

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import tvmconv.torch  # noqa: E402

SIZES = ((4, 5), (7, 13), (9, 4), (16, 33))


def draw(rng: random.Random, number: int) -> onnx.NodeProto:
    """Draw a pool of two axes whose windows reach behind the data."""
    kind = rng.choice(("AveragePool", "AveragePool", "MaxPool"))
    taps = [rng.randint(1, 3) for _ in range(2)]
    given: dict[str, Any] = {"kernel_shape": taps, "strides": [rng.randint(1, 3) for _ in range(2)]}
    if rng.random() < 0.5:
        given["auto_pad"] = rng.choice(("SAME_UPPER", "SAME_LOWER"))
        given["strides"] = [
            min(pair) for pair in zip(given["strides"], taps, strict=True)
        ]  # else onnxruntime refuses some sizes
    else:
        given["ceil_mode"] = 1
        given["pads"] = [rng.randrange(tap) for tap in taps * 2]
    if kind == "AveragePool":
        given["count_include_pad"] = rng.randint(0, 1)
    return onnx.helper.make_node(kind, ["x"], [f"y{number}"], **given)


@pytest.mark.parametrize("seed", range(2))
def test_drawn_pools(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    nodes = [draw(rng, number) for number in range(8)]
    print(seed, *nodes)
    outputs = [value(each.output[0], None) for each in nodes]
    source = save(model(nodes, [value("x", ["n", 3, "h", "w"])], outputs), tmp_path)
    check(
        source,
        free_network(source, "?x3x?x?", tmp_path),
        [(1 + height % 2, 3, height, width) for height, width in SIZES],
    )


class Pools(nn.Module):
    """Pools as ResNet-D, GoogLeNet and others have them."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        average, greatest, parts = (
            (nn.AvgPool2d, nn.MaxPool2d, nn.AdaptiveAvgPool2d),
            (nn.AvgPool3d, nn.MaxPool3d, nn.AdaptiveAvgPool3d),
        )[rank - 2]
        self.pools = nn.ModuleList(
            [
                average(2, 2, ceil_mode=True, count_include_pad=False),
                average(3, 2, 1, ceil_mode=True, count_include_pad=False),
                average(3, 3, ceil_mode=True),
                average(3, 1, 1),
                greatest(3, 2, ceil_mode=True),
                greatest(3, 2, 1, ceil_mode=True),
                greatest(2, 1, dilation=2),
                parts(4),
            ]
        )

    def forward(self, x: Any) -> Any:
        return tuple(each(x) for each in self.pools)


@pytest.mark.parametrize(("rank", "dtype"), [(2, torch.float16), (3, torch.float32)])
def test_pools_of_pytorch(rank: int, dtype: Any) -> None:
    pools = Pools(rank).eval()
    # PyTorch's exporter decides by multiples where sizes are rounded up.
    free = {"x": {2 + axis: 6 * Dim(f"s{axis}") for axis in range(rank)}}
    example = torch.zeros(1, 8, *[18, 12, 24][:rank], dtype=dtype)
    compiled = tvmconv.torch.compile(pools, example, dynamic_shapes=free, progress=None)
    for size in ((12, 18, 12), (30, 12, 18)):
        data = torch.randn(1, 8, *size[:rank]).to(dtype)
        expected, found = pools(data), compiled(data)
        assert [each.dtype for each in found] == [dtype] * len(found)
        assert [each.shape for each in found] == [each.shape for each in expected]
        for one, other in zip(found, expected, strict=True):
            assert_near(one, other, summed=400)
