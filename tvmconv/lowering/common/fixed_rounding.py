"""Operations on floating-point numbers that every CPU rounds alike.

LLVM contracts products and sums to multiply-adds wherever it finds them: in other places on other CPUs. Here a product that is
added to something is a multiply-add, and every other product is rounded by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, Op
from tvm_ffi.structural import structural_map

from ...algorithms.annotations import FIXED
from .step_arithmetic import fence, fma

_FUSED = ("float32", "float64")
_WIDE = "float32"  # in which products of f16 are exact, so that each is rounded once


def fix_rounding() -> tvm.transform.Pass:
    """Return the pass that fixes the rounding of functions that ask for FIXED."""

    def fix(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        if FIXED not in (func.attrs or {}):
            return func
        return func.with_body(round_alike(func.body)).without_attr(FIXED)

    return tirx.transform.prim_func_pass(fix, opt_level=0, name="FixRounding")


def round_alike(body: Any) -> Any:
    """Return the statement with multiply-adds for products that are added, and a fence around all others."""
    # Inner nodes come first: a product is fenced before the sum around it is visited.
    rules: list[tuple[type, Callable[[Any], Any]]] = [(tirx.Mul, _set_apart), (tirx.Add, _add), (tirx.Sub, _subtract)]
    return structural_map(body, rules)


def _set_apart(product: Any) -> Any:
    dtype = product.ty.dtype
    element = str(dtype).partition("x")[0]
    if element in _FUSED:
        return fence(product)
    if element != "float16":
        return product
    wide = f"{_WIDE}x{dtype.lanes}" if dtype.lanes > 1 else _WIDE
    return fence(product.a.astype(wide) * product.b.astype(wide)).astype(str(dtype))


def _add(total: Any) -> Any:
    for product, other in ((total.b, total.a), (total.a, total.b)):
        if factors := _factors(product):
            return fma(*factors, other)
    return total


def _subtract(difference: Any) -> Any:
    if factors := _factors(difference.a):
        return fma(*factors, -difference.b)
    if factors := _factors(difference.b):
        return fma(-factors[0], factors[1], difference.a)
    return difference


def _factors(value: Any) -> tuple[Any, Any] | None:
    """Return the factors of a fenced product; None: it is something else."""
    if not isinstance(value, Call) or not value.op.same_as(Op.get("tirx.call_llvm_pure_intrin")):
        return None
    product = value.args[-1]
    return (product.a, product.b) if len(value.args) == 2 and isinstance(product, tirx.Mul) else None
