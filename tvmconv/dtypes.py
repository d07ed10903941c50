"""Types of elements by their names in a Problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import missing_extra


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype of ``"f32"``, ``"f16"`` or ``"bf16"``.

    Raises
    ------
    MissingExtraError
        For ``"bf16"`` when `ml_dtypes` is not installed.
    """
    if dtype != "bf16":
        return np.dtype({"f32": np.float32, "f16": np.float16}[dtype])
    try:
        import ml_dtypes
    except ImportError:
        raise missing_extra("compile", "ml_dtypes") from None
    return np.dtype(ml_dtypes.bfloat16)
