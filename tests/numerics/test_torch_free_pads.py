"""Networks of any size that pad by extents: to the size of skips, to multiples, around the edges; and norms of images."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from near import assert_near  # noqa: E402
from numerics.test_network_free import check, free_network  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import TvmconvWarning  # noqa: E402


class Skips(nn.Module):
    """A U-Net that pads or crops enlarged maps to the size before halving."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, 2, 1)

    def forward(self, x: Any) -> Any:
        wide = self.first(x).relu()
        up = self.up(self.second(F.max_pool2d(wide, 2)).relu())
        down, right = wide.shape[2] - up.shape[2], wide.shape[3] - up.shape[3]
        up = F.pad(up, (right // 2, right - right // 2, down, 0), value=0.5)
        return self.last(torch.cat([up, wide], 1)), F.pad(up, (0, 5 - up.shape[3]))


class Multiples(nn.Module):
    """A restoration, which pads images to whole fours, halves and doubles them, and adds what it had."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down, self.last = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 16, 2, 2), nn.Conv2d(8, 3, 3, 1, 1)
        self.up = nn.Sequential(nn.Conv2d(16, 32, 1), nn.PixelShuffle(2))

    def forward(self, x: Any) -> Any:
        height, width = x.shape[-2:]
        wide = F.pad(x, (0, (4 - width % 4) % 4, 0, (4 - height % 4) % 4))
        data = self.first(wide)
        return (self.last(self.up(self.down(data)) + data) + wide)[:, :, :height, :width]


def style() -> nn.Module:
    """Return a transfer of style: normalized images, repeated edges."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
        nn.Conv2d(8, 3, 5, padding=2, padding_mode="replicate"), nn.InstanceNorm2d(3),
    )  # fmt: skip


class Ceilings(nn.Module):
    """A saliency network (as U2-Net) with pools that round up, and resizes to the sizes before them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = (nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3), nn.Conv2d(16, 4, 1))
        self.most, self.mean = (
            nn.MaxPool2d(2, ceil_mode=True),
            nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
        )

    def forward(self, x: Any) -> Any:
        data = self.first(x)
        pooled = self.most(data)
        small = self.mean(self.second(pooled))
        up = F.interpolate(small, size=pooled.shape[2:], mode="bilinear")
        return self.last(torch.cat([up, pooled], 1)), F.max_pool2d(data, 3, 2, ceil_mode=True)


@pytest.mark.parametrize(
    ("network", "channels", "sizes"),
    [(Ceilings, 1, [(16, 24), (17, 23), (9, 12)]), (Skips, 1, [(32, 48), (33, 51), (19, 7)]), (Multiples, 3, [(32, 48), (33, 50), (7, 19)]), (style, 3, [(16, 24), (9, 31), (5, 2)])],
)  # fmt: skip
def test_pads_by_extents(network: Any, channels: int, sizes: Sequence[tuple[int, int]]) -> None:
    torch.manual_seed(0)
    model = network().eval()
    free = ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC},)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", TvmconvWarning)
        fast = tvmconv.torch.optimize(model, torch.rand(1, channels, *sizes[0]), dynamic_shapes=free, progress=None)
        for batch, size in enumerate(sizes, 1):
            given = torch.rand(batch, channels, *size)
            found, right = fast(given), model(given)
            for one, other in zip(
                *((each,) if torch.is_tensor(each) else each for each in (found, right)), strict=True
            ):
                assert_near(one, other, summed=200, layers=5)


@pytest.mark.parametrize(("model", "channels"), [(Skips(), 1), (Multiples(), 3)], ids=["skips", "multiples"])
def test_pads_that_onnx_files_compute(model: nn.Module, channels: int, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = str(tmp_path / "model.onnx")
    axes = {"x": {0: "n", 2: "h", 3: "w"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's, of itself
        torch.onnx.export(
            model.eval(), (torch.zeros(1, channels, 8, 8),), path, dynamo=False, input_names=["x"], dynamic_axes=axes
        )
    shapes = [(1, channels, 17, 23), (2, channels, 16, 31), (3, channels, 9, 64)]
    check(path, free_network(path, f"?x{channels}x?x?", tmp_path), shapes)
