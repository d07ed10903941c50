"""`mean_over_pixels`: the mean of all pixels, channels last, in less time than PyTorch's mean takes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

# Into how many parts the pixels are cut, where they can be, so that threads read what they wrote and will write: a mean by one thread
# takes the lines from the others' caches. Two threads of a Zen 4, the mean of 672 channels at 14x14 and the product with it, in
# microseconds: PyTorch's mean 10 and 21, as one product of matrices 12 and 31, as four 9 and 5.
_PARTS = (16, 8, 4, 2)
_MOST_PARTS = 31  # an odd number of parts is uneven: the more, the less
_PIXELS = 1024  # of one part in f32: PyTorch's mean, which adds up partial sums, rounds less
_FEW_PIXELS = 400  # in bf16, whose product with the mean takes long by itself: parts take 4 us more


def mean_over_pixels(
    out: Any, data: Any, dim: Any = None, keepdim: bool = False, **others: Any
) -> Callable[[], Any] | None:
    """Return what computes ``torch.mean(data, dim, keepdim, **others, out=out)``, whatever `data` holds by then.

    None if it is no mean over all axes but the first two, or the tensors lie otherwise.
    """
    if dim is None or others:
        return None
    rank = data.dim()
    axes = sorted(axis % rank for axis in ([dim] if isinstance(dim, int) else dim))
    if data.dtype not in (torch.float32, torch.bfloat16) or rank < 3 or axes != [*range(2, rank)]:
        return None
    batch, channels = data.shape[:2]
    last = data.movedim(1, -1)
    pixels = last[0, ..., 0].numel() if batch and channels else 0
    if not pixels or not last.is_contiguous() or not out.is_contiguous():
        return None
    pixel_rows = last.view(batch, pixels, channels)
    if data.dtype == torch.bfloat16:
        return _quotients(pixel_rows, out.view(batch, channels))
    return _products(pixel_rows, out.view(batch, channels))


def _products(data: Any, out: Any) -> Callable[[], Any] | None:
    """Return what writes the means of f32 along axis 1 to `out`: products of matrices, None if they would round too much."""
    batch, pixels, channels = data.shape
    parts = _parts(pixels)
    length = pixels // parts
    if length > _PIXELS:
        return None
    matrices, factors = data.view(batch * parts, length, channels), torch.full((batch * parts, 1, length), 1 / pixels)
    if parts == 1:
        return functools.partial(torch.bmm, factors, matrices, out=out.view(batch, 1, channels))
    sums = _scratch((batch, parts, channels), data.dtype)

    def compute() -> None:
        torch.bmm(factors, matrices, out=sums.view(batch * parts, 1, channels))
        torch.sum(sums, 1, out=out)

    return compute


def _quotients(data: Any, out: Any) -> Callable[[], None]:
    """Return what writes the means of bf16 along axis 1 to `out`: f32 sums, rounded, by their number, rounded again.

    480 channels at 14x14 take 15 us on one core of a Zen 4, and 20 by PyTorch's mean, which rounds once; 240 at 28x28 23 and 56.
    """
    batch, pixels, channels = data.shape
    parts = _parts(pixels) if pixels > _FEW_PIXELS else 1
    sums = _scratch((batch, parts, channels), data.dtype) if parts > 1 else None
    rows = data.view(batch, parts, pixels // parts, channels)

    def compute() -> None:
        if sums is None:
            torch.sum(data, 1, out=out)
        else:
            torch.sum(rows, 2, out=sums)
            torch.sum(sums, 1, out=out)
        torch.div(out, pixels, out=out)

    return compute


def _parts(pixels: int) -> int:
    """Return into how many parts so many pixels are cut."""
    counts = (*_PARTS, *range(_MOST_PARTS, 0, -1))
    return next(count for count in counts if pixels % count == 0)


def _scratch(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a tensor that may be written whether the inference mode is on or not."""
    with torch.inference_mode(False):
        return torch.empty(shape, dtype=dtype)
