"""Types in kernels: every type is widened to f32 when loaded and rounded once when stored.

LLVM's code generation in TVM has no bf16, and NumPy exports none, so kernels for CPUs take bf16 as uint16 bits.
On GPUs it is a type like the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

KERNEL_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "uint16"}
CUDA_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def kernel_dtype(dtype: str) -> str:
    """Return the TVM type of kernel arguments on CPUs for a problem's type."""
    return KERNEL_DTYPES[dtype]


def cuda_dtype(dtype: str) -> str:
    """Return the TVM type of kernel arguments on GPUs for a problem's type."""
    return CUDA_DTYPES[dtype]


def widen(value: Any, dtype: str) -> Any:
    """Return `value` of a problem's type as f32 (exact)."""
    if dtype == "f32":
        return value
    if dtype == "f16":
        return value.astype("float32")
    return tirx.reinterpret("float32", value.astype("uint32") << tirx.const(16, "uint32"))


def narrow(value: Any, dtype: str) -> Any:
    """Return f32 `value` rounded to a problem's type, to nearest even."""
    if dtype == "f32":
        return value
    if dtype == "f16":
        return value.astype("float16")
    lanes = value.ty.dtype.lanes
    uint32, uint16 = (f"{each}x{lanes}" if lanes > 1 else each for each in ("uint32", "uint16"))
    bits = tirx.reinterpret(uint32, value)
    one, half = tirx.const(1, uint32), tirx.const(0x7FFF, uint32)
    rounded = (bits + half + (bits >> tirx.const(16, uint32) & one)) >> tirx.const(16, uint32)
    # Rounding up could turn a NaN's bits into an infinity's: a NaN becomes the quiet NaN instead.
    magnitude = bits & tirx.const(0x7FFFFFFF, uint32)
    is_nan = magnitude > tirx.const(0x7F800000, uint32)
    return tirx.Select(is_nan, tirx.const(0x7FC0, uint32), rounded).astype(uint16)


def zero_outside(bounds: Sequence[Any], value: Any, dtype: str = "float32") -> Any:
    """Return `value`, of the TVM type `dtype`, where all of `bounds` hold, else 0."""
    return tirx.if_then_else(tirx.all(*bounds), value, tirx.const(0, dtype)) if bounds else value
