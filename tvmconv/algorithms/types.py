"""Types in kernels: operands are widened to the type of sums when loaded, and sums rounded once when stored.

LLVM's code generation in TVM has no bf16, and NumPy exports none, so kernels for CPUs take bf16 as uint16 bits.
GPUs have a bf16 type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from ..dtypes import ROWS
from ..problem import Problem

KERNEL_DTYPES = {name: row.in_kernels for name, row in ROWS.items()}
CUDA_DTYPES = {name: row.numpy for name, row in ROWS.items()}


def kernel_dtype(dtype: str) -> str:
    """Return the TVM type of kernel arguments on CPUs for a problem's type."""
    return KERNEL_DTYPES[dtype]


def cuda_dtype(dtype: str) -> str:
    """Return the TVM type of kernel arguments on GPUs for a problem's type."""
    return CUDA_DTYPES[dtype]


def sum_type(problem: Problem) -> str:
    """Return the TVM type of products of single channels and their sums.

    That is f32, also for integers whose sums are exact in f32: vectors multiply f32 in half the time, or less.
    """
    return "int32" if problem.largest_sum > 2**24 else "float32"


def load_data(value: Any, problem: Problem) -> Any:
    """Return an element of data as an operand of products."""
    return _load(value, problem, problem.types.data, problem.zero_point)


def load_filter(value: Any, problem: Problem) -> Any:
    """Return an element of the filter as an operand of products."""
    return _load(value, problem, problem.types.filter, problem.filter_zero_point)


def _load(value: Any, problem: Problem, dtype: str, zero_point: int) -> Any:
    if not problem.is_quantized:
        return widen(value, dtype)
    number = value.astype("int32")
    return (number - zero_point if zero_point else number).astype(sum_type(problem))


def widen(value: Any, dtype: str) -> Any:
    """Return `value` of a problem's type as f32 (exact)."""
    if dtype == "f32":
        return value
    if dtype != "bf16":
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
    # Rounding up could turn a NaN's bits into an infinity's, so NaN is replaced by the quiet NaN.
    magnitude = bits & tirx.const(0x7FFFFFFF, uint32)
    is_nan = magnitude > tirx.const(0x7F800000, uint32)
    return tirx.Select(is_nan, tirx.const(0x7FC0, uint32), rounded).astype(uint16)


def zero_outside(bounds: Sequence[Any], value: Any, dtype: str = "float32") -> Any:
    """Return `value`, of the TVM type `dtype`, where all of `bounds` hold, else 0."""
    return tirx.if_then_else(tirx.all(*bounds), value, tirx.const(0, dtype)) if bounds else value
