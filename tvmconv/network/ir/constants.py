"""Constants of a graph: arrays, their sizes, integers and shapes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst

Array = npt.NDArray[Any]
# Number of sampled bytes that must be equal before whole arrays are compared.
_COMPARED = 64


def constant(expr: Any) -> Array | None:
    """Return a constant's array, read-only; None: `expr` is no constant."""
    if not isinstance(expr, GenericConst):
        return None
    try:
        array = np.from_dlpack(expr.value)
    except RuntimeError:  # bf16, a type of another package
        return expr.value.numpy()
    array.flags.writeable = False  # shares the constant's memory
    return array


class DistinctArrays:
    """Numbering of arrays, the same number for equal bytes."""

    def __init__(self) -> None:
        self._alike: dict[tuple[int, bytes], list[tuple[Array, int]]] = {}
        self._count = 0

    def number(self, array: Array) -> int:
        """Return the number of an array, which must not change later."""
        # Sampled by elements: reading a transposed array as bytes would copy it.
        places = np.arange(0, array.nbytes, array.nbytes // _COMPARED + 1)
        elements = _as_bytes(array.flat[places // array.itemsize]).reshape(len(places), array.itemsize)
        some = elements[np.arange(len(places)), places % array.itemsize].tobytes()
        alike = self._alike.setdefault((array.nbytes, some), [])
        for other, number in alike:
            if np.array_equal(_as_bytes(array), _as_bytes(other)):
                return number
        alike.append((array, self._count))
        self._count += 1
        return self._count - 1


def _as_bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def constant_bytes(mod: tvm.IRModule) -> int:
    """Return the bytes of a module's constants, each distinct array counted once."""
    return sum(constant_sizes(mod, DistinctArrays()).values())


def constant_sizes(mod: tvm.IRModule, arrays: DistinctArrays) -> dict[int, int]:
    """Return the bytes of a module's constants by their numbers in `arrays`."""
    sizes: dict[int, int] = {}

    def note(expr: Any) -> None:
        array = constant(expr)
        if array is not None:
            sizes[arrays.number(array)] = array.nbytes

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, note)
    return sizes


def integers(expr: Any) -> list[int] | None:
    """Return the numbers of a tuple or shape, or a number as a list; None: they are not fixed."""
    fields = expr.fields if isinstance(expr, (relax.Tuple, relax.ShapeExpr)) else [expr]
    numbers = [getattr(each, "value", each) for each in fields]
    return [int(each) for each in numbers] if all(isinstance(each, (int, tirx.IntImm)) for each in numbers) else None


def static_shape(type_: Any) -> tuple[int, ...] | None:
    """Return a tensor type's shape; None if it is not fixed."""
    shape = getattr(type_, "shape", None)
    return _numbers(shape) if isinstance(shape, relax.ShapeExpr) else None


@lru_cache(maxsize=4096)  # requested often; reading TVM's array takes ten times as long
def _numbers(shape: relax.ShapeExpr) -> tuple[int, ...] | None:
    sizes = list(shape.values)
    return tuple(map(int, sizes)) if all(isinstance(size, tirx.IntImm) for size in sizes) else None
