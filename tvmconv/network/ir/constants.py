"""Fixed numbers of a graph: arrays of constants, their sizes, integers and shapes."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst

Array = npt.NDArray[Any]


def constant(expr: Any) -> Array | None:
    """Return the array that a constant holds; None: `expr` is something else."""
    return expr.value.numpy() if isinstance(expr, GenericConst) else None


def constant_bytes(mod: tvm.IRModule) -> int:
    """Return how many bytes the constants of a module's functions have, each array once."""
    return sum(constant_sizes(mod).values())


def constant_sizes(mod: tvm.IRModule) -> dict[bytes, int]:
    """Return the bytes of each constant of a module's functions, by what :func:`content` returns of it."""
    sizes: dict[bytes, int] = {}

    def note(expr: Any) -> None:
        array = constant(expr)
        if array is not None:
            sizes[content(array)] = array.nbytes

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, note)
    return sizes


def content(array: Array) -> bytes:
    """Return a digest of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()


def integers(expr: Any) -> list[int] | None:
    """Return the numbers of a tuple or a shape, or one number as such; None: they are not fixed."""
    fields = expr.fields if isinstance(expr, (relax.Tuple, relax.ShapeExpr)) else [expr]
    numbers = [getattr(each, "value", each) for each in fields]
    return [int(each) for each in numbers] if all(isinstance(each, (int, tirx.IntImm)) for each in numbers) else None


def static_shape(type_: Any) -> tuple[int, ...] | None:
    """Return the shape that a tensor's type fixes; None if it does not."""
    shape = getattr(type_, "shape", None)
    return _numbers(shape) if isinstance(shape, relax.ShapeExpr) else None


@lru_cache(maxsize=4096)  # asked for again and again; to read one of TVM's arrays takes ten times as long
def _numbers(shape: relax.ShapeExpr) -> tuple[int, ...] | None:
    sizes = list(shape.values)
    return tuple(map(int, sizes)) if all(isinstance(size, tirx.IntImm) for size in sizes) else None
