"""Answers beside another library's: as near as rounding and the order of sums leave them, by `tvmconv.accuracy`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvmconv.accuracy import rounding, tolerance


def assert_near(answer: Any, right: Any, summed: int = 1, layers: int = 1, **more: Any) -> None:
    """Compare arrays of NumPy's or tensors of PyTorch's, or structures of them; whole numbers and truth values exactly.

    Of two types the coarser counts. What was summed, and other arguments, are those of `tolerance`.
    """
    if isinstance(right, dict):
        assert answer.keys() == right.keys()
        answer, right = [answer[name] for name in right], list(right.values())
    if isinstance(right, list | tuple):
        for one, other in zip(answer, right, strict=True):
            assert_near(one, other, summed, layers, **more)
        return
    if not hasattr(right, "dtype"):
        assert answer == right
        return
    assert answer.shape == right.shape
    if not isinstance(right, np.ndarray | np.generic):
        assert answer.dtype == right.dtype
    one, other = _array(answer), _array(right)
    if other.dtype.kind in "biu":
        np.testing.assert_array_equal(one, other)
    else:
        coarsest = max(answer.dtype, right.dtype, key=rounding)
        np.testing.assert_allclose(one, other, **tolerance(other, summed, layers, **({"dtype": coarsest} | more)))


def _array(given: Any) -> Any:
    """Return a tensor as an array, in a type that NumPy knows."""
    if isinstance(given, np.ndarray | np.generic):
        return given if given.dtype.kind in "biuc" else given.astype(np.float64)
    tensor = given.detach().cpu().resolve_conj()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()
