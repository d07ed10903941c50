"""Arrays at chosen places in memory."""

from __future__ import annotations

import numpy as np


def aligned(array: np.ndarray, offset: int = 0) -> np.ndarray:
    """Return a copy that begins `offset` bytes after a multiple of 64."""
    raw = np.zeros(array.nbytes + 128 + offset, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
