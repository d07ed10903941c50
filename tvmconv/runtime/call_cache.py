"""Find the kernel of a call by its arrays and attributes, with a cache of equal calls."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from typing import Any

from ..dtypes import FLOATS
from ..errors import InputError
from ..problem import Problem
from .arrays import view
from .backend import Device
from .cuda.arrays import dtype_of, location, same_gpu
from .cuda.kernel import CudaKernel
from .kernel import Kernel
from .selection import gpu_at

# Size of the cache; programs call with fewer distinct shapes.
_REMEMBERED = 4096


class CallCache:
    """Cache of kernels by the arrays and attributes of calls.

    Parameters
    ----------
    lookup
        Returns the kernel of a problem on a device.
    has_cuda
        Whether arrays may be on a GPU.
    """

    def __init__(self, lookup: Callable[[Problem, Device], Kernel | CudaKernel], has_cuda: bool) -> None:
        self._lookup = lookup
        self._has_cuda = has_cuda
        self._kernels: dict[Any, Kernel | CudaKernel] = {}

    def find(
        self, op: Callable[..., Problem], data: Any, filter: Any, bias: Any, attributes: Mapping[str, Any]
    ) -> Kernel | CudaKernel:
        """Return the kernel of a call, from the cache of equal calls or by the operation's rules."""
        key: Any
        try:
            # The kernel itself checks what is not in the key: the filter's type, the bias's shape and type.
            # Version 2 of marshal: equal values give equal bytes.
            place = location(data) if self._has_cuda else None
            key = (op, data.shape, data.dtype, filter.shape, bias is None, marshal.dumps(dict(attributes), 2), place)
            kernel = self._kernels.get(key)
        except (AttributeError, TypeError, ValueError):  # arguments that cannot be a key
            key = kernel = None
        if kernel is None:
            kernel = self._lookup(*_problem_of(op, data, filter, bias, attributes))
            # marshal's bytes identify only plain attributes: NumPy scalars of different types have the same.
            if key is not None and all(map(_is_plain, attributes.values())):
                if len(self._kernels) >= _REMEMBERED:
                    self._kernels.clear()
                self._kernels[key] = kernel
        return kernel


def _problem_of(
    op: Callable[..., Problem], data: Any, filter: Any, bias: Any, attributes: Mapping[str, Any]
) -> tuple[Problem, Device]:
    """Return a call's problem, and its device."""
    named = {"data": data, "filter": filter, **({} if bias is None else {"bias": bias})}
    index = same_gpu(named)
    if index is None:
        views = {name: view(name, value) for name, value in named.items()}
        types = {name: dtype for name, (_, dtype) in views.items()}
        shapes = {name: array.shape for name, (array, _) in views.items()}
    else:
        types = {name: dtype_of(value) for name, value in named.items()}
        shapes = {name: tuple(value.shape) for name, value in named.items()}
    if types["data"] not in FLOATS and "dtype" not in attributes:
        raise InputError(
            f"data has type {types['data']}; for integers, give the types of data, filter and output, for example dtype='u8s8u8'"
        )
    if types["data"] in FLOATS and len(set(types.values())) > 1:
        given = ", ".join(f"{name} {dtype}" for name, dtype in types.items())
        raise InputError(f"the types differ: {given}; all must be the same")
    named = {"dtype": types["data"], **attributes}
    problem = op(shapes["data"], shapes["filter"], bias_shape=shapes.get("bias"), **named)
    return problem, None if index is None else gpu_at(index)


def _is_plain(value: Any) -> bool:
    """Return whether `value` is exactly None, a str, an int, or a tuple or list of ints, no instance of a subclass."""
    if type(value) is tuple or type(value) is list:
        return all(type(item) is int for item in value)
    return value is None or type(value) in (int, str)
