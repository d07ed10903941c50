"""Maximum and minimum of two numbers that propagate NaN, as in ONNX, NumPy and PyTorch.

TVM's simplifier takes ``x != x`` for false, hence `isnan`.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

# `isnan` works on vectors in LLVM. Without this attribute, TVM turns a vectorized loop into a scalar one, which LLVM vectorizes again with
# gathers and scatters.
tvm.ir.register_op_attr("tirx.isnan", "TVectorizable", True)


def greater(x: Any, y: Any) -> Any:
    """Return the greater of two numbers; NaN if either is NaN."""
    return tirx.Select(tirx.isnan(x), x, tirx.Select(x > y, x, y))


def less(x: Any, y: Any) -> Any:
    """Return the lesser of two numbers; NaN if either is NaN."""
    return tirx.Select(tirx.isnan(x), x, tirx.Select(x < y, x, y))
