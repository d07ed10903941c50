"""Random chains of PyTorch's operators; `python -m tests.programs` tries more."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from near import assert_near  # noqa: E402
from torch import nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tests.programs.check import check_seed  # noqa: E402


@pytest.mark.parametrize("seed", range(3, 7))  # layouts and types go by it
def test_a_program_is_as_pytorch_has_it(seed: int) -> None:
    outcome, text = check_seed(seed)
    assert outcome.kind in ("right", "refused"), f"{outcome.detail}\n{text}"


class Unbatched(nn.Module):
    """Convolutions, a pool and a resize of one line, one plane, one volume."""

    def __init__(self) -> None:
        super().__init__()
        pairs = ((nn.Conv1d, nn.ConvTranspose1d), (nn.Conv2d, nn.ConvTranspose2d), (nn.Conv3d, nn.ConvTranspose3d))
        self.first = nn.ModuleList(conv(3, 8, 3, padding=1) for conv, _ in pairs)
        self.last = nn.ModuleList(transposed(8, 4, 2, 2, groups=2) for _, transposed in pairs)
        self.pools = nn.ModuleList([nn.MaxPool1d(2), nn.AvgPool2d(2, ceil_mode=True), nn.AdaptiveMaxPool3d(2)])

    def forward(self, *images: Any) -> Any:
        layers = zip(images, self.first, self.pools, self.last, strict=True)
        return [last(pool(first(image).relu())) for image, first, pool, last in layers]


def test_images_without_a_batch() -> None:
    torch.manual_seed(0)
    model, images = Unbatched().eval(), (torch.randn(3, 9), torch.randn(3, 7, 6), torch.randn(3, 4, 5, 6))
    fast = tvmconv.torch.optimize(model, images, progress=None)
    assert all(row.by != "PyTorch" for row in tvmconv.torch.report(fast))
    with torch.no_grad():
        assert_near(fast(*images), model(*images), 3 * 27 + 8, 2)
