"""Means of all pixels: as PyTorch's, and which are left to it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tvmconv.torch.means import mean_over_pixels  # noqa: E402


def _channels_last(*shape: int, **options: Any) -> Any:
    return torch.randn(shape[0], *shape[2:], shape[1], **options).movedim(-1, 1)


@pytest.mark.parametrize(
    ("shape", "dim", "keepdim"),
    [
        ((1, 24, 7, 7), (2, 3), True),
        ((3, 5, 4, 6), [-1, -2], False),
        ((2, 8, 9), -1, True),
        ((2, 3, 2, 4, 5), (4, 2, 3), False),
        ((1, 1, 1, 1), (2, 3), True),
        ((2, 5, 28, 28), (2, 3), True),  # in 16 parts
        ((2, 3, 13, 13), (2, 3), False),  # in 13
        ((2, 3, 37), 2, False),  # in one
        ((1, 2, 128, 128), (2, 3), True),
    ],
)
def test_is_the_mean(shape: tuple[int, ...], dim: Any, keepdim: bool) -> None:
    data = _channels_last(*shape)
    out = torch.empty_like(data.mean(dim, keepdim))
    compute = mean_over_pixels(out, data, dim, keepdim=keepdim)
    assert compute is not None
    for _ in range(2):
        data.mul_(3)  # it is read at each call
        compute()
        torch.testing.assert_close(out, data.mean(dim, keepdim), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "shape", [(1, 24, 7, 7), (3, 5, 4, 6), (2, 8, 9), (1, 16, 56, 56), (3, 4, 21, 21), (1, 1, 1, 1)]
)
def test_of_bf16_rounds_the_sum_and_the_quotient(shape: tuple[int, ...]) -> None:
    data, axes = _channels_last(*shape).bfloat16(), tuple(range(2, len(shape)))
    out = data.mean(axes)
    compute = mean_over_pixels(out, data, axes)
    assert compute is not None
    compute()
    exact, size = data.double().mean(axes), data.double().abs().mean(axes)
    # Twice half of the last bit, half of the last bit of each part's sum, and what adding in f32 loses.
    assert ((out.double() - exact).abs() <= 2**-7 * exact.abs() + (2**-9 + 1e-4) * size).all()


@pytest.mark.parametrize(
    ("data", "dim"),
    [
        (_channels_last(1, 8, 4, 4), (1, 2, 3)),
        (_channels_last(1, 8, 4, 4), (2,)),
        (_channels_last(1, 8, 4, 4), 1),
        (torch.randn(1, 8, 4, 4), (2, 3)),
        (torch.randn(4, 8), ()),
        (_channels_last(1, 8, 4, 4, dtype=torch.float64), (2, 3)),
        (_channels_last(1, 8, 4, 4).half(), (2, 3)),
        (torch.randn(1, 8, 4, 4).bfloat16(), (2, 3)),
        (_channels_last(1, 8, 37, 37), (2, 3)),
        (_channels_last(1, 8, 0, 4), (2, 3)),
        (_channels_last(1, 8, 0, 4).bfloat16(), (2, 3)),
        (_channels_last(0, 8, 4, 4), (2, 3)),
    ],
)
def test_what_is_left_to_pytorch(data: Any, dim: Any) -> None:
    assert mean_over_pixels(data.mean(dim, keepdim=True), data, dim, keepdim=True) is None


def test_other_arguments_are_left_to_pytorch() -> None:
    data = _channels_last(1, 8, 4, 4)
    assert mean_over_pixels(data.mean(), data, dim=None) is None
    assert mean_over_pixels(data.mean((2, 3)), data, (2, 3), dtype=torch.float32) is None
    assert mean_over_pixels(data.mean((2, 3)), data, axis=(2, 3)) is None
