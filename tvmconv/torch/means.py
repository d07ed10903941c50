"""`mean_over_pixels`: the mean of all pixels, channels last, as a product of matrices; PyTorch's mean takes twice as long."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

# Of more pixels reading them takes the time, so nothing is won; and PyTorch's mean, which adds up partial sums, rounds less.
_PIXELS = 1024


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
    if data.dtype != torch.float32 or rank < 3 or axes != [*range(2, rank)]:
        return None
    batch, channels = data.shape[:2]
    last = data.movedim(1, -1)
    pixels = last[0, ..., 0].numel() if batch and channels else 0
    if not 0 < pixels <= _PIXELS or not last.is_contiguous() or not out.is_contiguous():
        return None
    parts = torch.full((batch, 1, pixels), 1 / pixels)
    return functools.partial(torch.bmm, parts, last.view(batch, pixels, channels), out=out.view(batch, 1, channels))
