"""Fold operations that follow a convolution, and are linear in each channel, into its filter and bias."""

from __future__ import annotations

import numpy as np


def fold(
    filter_: np.ndarray,
    bias: np.ndarray | None,
    factor: np.ndarray | None,
    shift: np.ndarray | None,
    groups: int | None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the filter and the bias of a convolution that multiplies each output channel by `factor` and adds `shift`.

    Parameters
    ----------
    filter_, bias
        The convolution's own, in ONNX's layouts; the results have their type.
    factor, shift
        (M,), f64; None: 1, and 0.
    groups
        Those of a transposed convolution, whose filter is (C, M/groups, k...); None for any other.
    """
    dtype = filter_.dtype
    if bias is not None:
        own = bias.astype(np.float64) * (1 if factor is None else factor)
        shift = own if shift is None else own + shift
    if factor is not None:
        taps, ones = filter_.astype(np.float64), (1,) * (filter_.ndim - 2)
        if groups is None:
            taps = taps * factor.reshape(-1, 1, *ones)
        else:  # the output channels of each group are a part of M
            parts = taps.reshape(groups, -1, *taps.shape[1:])
            taps = (parts * factor.reshape(groups, 1, -1, *ones)).reshape(taps.shape)
        filter_ = taps.astype(dtype)
    return filter_, None if shift is None else shift.astype(dtype)
