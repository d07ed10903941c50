"""NaN, infinities and numbers beside whole multiples in PyTorch's programs: every operator gives what PyTorch does."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.nn.functional import interpolate as resized  # noqa: E402

import tvmconv.torch  # noqa: E402

SPECIAL = [float("nan"), float("inf"), float("-inf"), 0.0, 1.0, -1.0, 0.3, 2.7, -5.5, 3e4]


class Asks(torch.nn.Module):
    """Asks which numbers are what, also by comparing them with themselves, as code did before there was `isnan`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, data: Any, x: Any) -> Any:
        again = x.abs() * x.sign()
        asked = [torch.isfinite(x), torch.isinf(x), torch.isnan(x), x == x, x != x, x >= x, x <= x, x > x, x < x]
        asked += [again == x, again >= x, again <= x, x == 1, x >= 1, x <= 1]
        asked += [torch.where(each, x, 0) for each in (x == x, x != x, x >= x, x <= x)]
        return self.layer(data), asked


class Divides(torch.nn.Module):
    """Divides by tensors and numbers, rounded down, and takes what remains."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, data: Any, x: Any, y: Any) -> Any:
        made = [
            x % y,
            x // y,
            torch.div(x, y, rounding_mode="floor"),
            x % 3,
            x % 4,
            x % -0.5,
            x // 3,
            x // 4,
            x // -0.5,
        ]
        return self.layer(data), [*made, 1 % y, 3 // y, torch.fmod(x, y)]


class OfBytes(torch.nn.Module):
    """Computes with images of 8 bits without a sign as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, data: Any, x: Any) -> Any:
        made = [
            resized(x, size, mode=mode) for mode in ("nearest", "bilinear", "bicubic") for size in ((18, 20), (5, 13))
        ]
        return self.layer(data), [*made, -x, x.sign(), x.abs(), x.clamp(min=1).reciprocal(), 255 - x]


def check(model: Any, example: Any, *given: Any, left: Collection[str] = ()) -> None:
    """Compare a model that is compiled for an example with itself in f32 or f64, on other numbers, exactly."""
    data = torch.randn(2, 3)
    with torch.no_grad():
        fast = tvmconv.torch.optimize(model, (data, *example), progress=None)
        report = tvmconv.torch.report(fast)
        assert not report.refused and {row.computes for row in report if row.by == "PyTorch"} == {*left}
        _, found = fast(data, *given)
        # PyTorch rounds every step of a division to its type.
        coarse = (torch.float16, torch.bfloat16)
        _, right = model(data, *(each.float() if each.dtype in coarse else each for each in given))
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_questions(dtype: Any) -> None:
    check(Asks().eval(), [torch.rand(2, 10).to(dtype)], torch.tensor([SPECIAL, SPECIAL[::-1]]).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_divisions_beside_whole_multiples(dtype: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.rand(6, 40, generator=generator).add(0.1).mul(torch.randint(0, 2, (6, 40), generator=generator) * 2 - 1)
    y = torch.cat([y, torch.full((1, 40), 3.0), torch.full((1, 40), -0.5)]).to(dtype)
    x = y * torch.randint(-20, 20, y.shape, generator=generator).to(dtype)
    beside = torch.nextafter(x, torch.full_like(x, torch.inf)), torch.nextafter(x, torch.full_like(x, -torch.inf))
    x = torch.stack([x, *beside, x * 100 + y / 3])
    check(Divides().eval(), [torch.rand_like(x), y.abs()], x, y)


def test_images_of_8_bits() -> None:
    images = torch.arange(2 * 9 * 10).reshape(2, 1, 9, 10)
    # PyTorch rounds between the axes.
    left = "upsample_bilinear2d.vec", "upsample_bicubic2d.vec"
    check(OfBytes().eval(), [(images * 31 % 256).to(torch.uint8)], (images * 97 % 256).to(torch.uint8), left=left)
