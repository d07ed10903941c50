"""Output sizes of pools that round up, for torch.export with free sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import _meta_registrations as meta


@contextmanager
def ceil_pools() -> Iterator[None]:
    """Keep PyTorch (2.13), within the context, from testing whether a pool's last window begins beyond its data, where none can.

    The result is the same for all sizes, but PyTorch's test depends on the parity of the size, so torch.export would accept a model
    with `ceil_mode` for even sizes only.
    """
    own = meta.pooling_output_shape_pad_lr

    def compute(size: Any, taps: int, left: int, right: int, stride: int, dilation: int, ceil_mode: bool) -> Any:
        # The last window begins at most at size + left + right - span + stride - 1.
        span = dilation * (taps - 1) + 1
        if ceil_mode and right + stride <= span:
            return own(size + stride - 1, taps, left, right, stride, dilation, False)
        return own(size, taps, left, right, stride, dilation, ceil_mode)

    meta.pooling_output_shape_pad_lr = compute
    try:
        yield
    finally:
        meta.pooling_output_shape_pad_lr = own
