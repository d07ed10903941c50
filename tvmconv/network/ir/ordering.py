"""The greater and the less of two numbers, with NaN kept, as ONNX, NumPy and PyTorch do.

TVM's simplifier takes ``x != x`` for false, so that is asked for by `isnan`.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

# LLVM compares vectors with themselves as it does numbers. Without this, TVM takes a vectorized loop apart, and LLVM puts such loops
# together again of gathers and scatters.
tvm.ir.register_op_attr("tirx.isnan", "TVectorizable", True)


def greater(x: Any, y: Any) -> Any:
    """Return the greater of two numbers; not a number if one is not."""
    return tirx.Select(tirx.isnan(x), x, tirx.Select(x > y, x, y))


def less(x: Any, y: Any) -> Any:
    """Return the less of two numbers; not a number if one is not."""
    return tirx.Select(tirx.isnan(x), x, tirx.Select(x < y, x, y))
