"""Tables of Relax's operators: binary ones by name, convolutions and pools by number of spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax

Operators = Mapping[int, Callable[..., Any]]

# Elementwise operators on two tensors, by name.
BINARY: Mapping[str, Callable[..., Any]] = {
    f"relax.{name}": getattr(relax.op, name)
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
}
CONVOLUTIONS: Operators = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
TRANSPOSED: Operators = {
    1: relax.op.nn.conv1d_transpose,
    2: relax.op.nn.conv2d_transpose,
    3: relax.op.nn.conv3d_transpose,
}
AVERAGE_POOLS: Operators = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}
MAX_POOLS: Operators = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
# Letters of spatial axes in layouts, by their number.
SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
# Calls of functions that a module has, rather than of operators.
FUNCTION_CALLS = {f"relax.{name}" for name in ("call_tir", "call_dps_packed", "call_pure_packed", "call_tir_with_grad")}
