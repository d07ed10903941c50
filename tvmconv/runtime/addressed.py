"""`AddressedKernel`: a kernel that is called with the addresses of arrays, for callers who know that they fit."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .dltensor import CPU, FLOAT, INTEGER, UNSIGNED, DLTensor

_INT, _DLTENSOR = 1, 7  # tvm-ffi's numbers of the types of arguments
_CODES = {"i": INTEGER, "u": UNSIGNED, "f": FLOAT}  # by NumPy's kinds of types

Array = tuple[tuple[int, ...], "np.dtype[Any]"]


class _Any(ctypes.Structure):
    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_int64))


class PreparedCall:
    """A call of a kernel whose arguments stay as they were set. Not to be called by two threads at a time.

    Made by :meth:`AddressedKernel.prepared`.

    Attributes
    ----------
    run
        Computes it, and returns 0, or another number if the kernel fails, for example of lack of memory.
    """

    def __init__(self, function: Any, arrays: Sequence[Array]) -> None:
        self._tensors = tuple(DLTensor(None, CPU, 0, len(shape), _CODES[dtype.kind], 8 * dtype.itemsize, 1, _numbers(shape), _numbers(_strides(shape)), 0) for shape, dtype in arrays)  # fmt: skip
        addresses = (_Any(_DLTENSOR, 0, ctypes.addressof(tensor)) for tensor in self._tensors)
        self._arguments = (_Any * (1 + len(arrays)))(_Any(_INT, 0, 1), *addresses)
        self._threads = self._arguments[0]
        self._result = _Any()
        frame, result = ctypes.addressof(self._arguments), ctypes.addressof(self._result)
        self.run: Callable[[], int] = partial(function, None, frame, len(self._arguments), result)

    def set_threads(self, threads: int) -> None:
        """Compute with `threads` threads."""
        self._threads.value = threads

    def set_address(self, array: int, address: int) -> None:
        """Give the address of an array: 0 is the first input, in the problem's order, -1 the output."""
        self._tensors[array].data = address

    def set_addresses(self, addresses: Sequence[int]) -> None:
        """Give the addresses of all arrays."""
        for tensor, address in zip(self._tensors, addresses, strict=True):
            tensor.data = address


class AddressedKernel:
    """A function of a kernel's library. Nothing is checked, and calls are safe from several threads.

    A call takes a few microseconds less than one with arrays, which are looked at one by one. Made by
    :meth:`tvmconv.Kernel.addressed`.

    Parameters
    ----------
    path, symbols
        The library, and functions in it that take the number of threads first: the first that it has is called, for a
        library that was built before there was OpenMP's.
    arrays
        Shape and type of each array.

    Attributes
    ----------
    library
        The library.
    """

    def __init__(self, path: str, symbols: Sequence[str], arrays: Sequence[Array]) -> None:
        self._arrays = tuple(arrays)
        self.library = ctypes.CDLL(path)
        self._name = next(each for each in symbols if hasattr(self.library, f"__tvm_ffi_{each}"))
        self._function = self.library[f"__tvm_ffi_{self._name}"]
        self._function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
        # Calls that nobody makes now; a list's pop and append are atomic.
        self._calls: list[PreparedCall] = []

    def prepared(self) -> PreparedCall:
        """Return a call, for who makes the same one many times: it takes a microsecond less."""
        return PreparedCall(self._function, self._arrays)

    def __call__(self, threads: int, *addresses: int) -> None:
        """Compute with `threads` threads; the addresses are those of the inputs, in the problem's order, and the output.

        Raises
        ------
        RuntimeError
            If the kernel fails, for example of lack of memory.
        """
        try:
            call = self._calls.pop()
        except IndexError:
            call = self.prepared()
        call.set_threads(threads)
        call.set_addresses(addresses)
        status = call.run()
        self._calls.append(call)
        if status:
            raise RuntimeError(f"{self._name} fails with status {status}")


def _numbers(values: Sequence[int]) -> Any:
    return ctypes.cast((ctypes.c_int64 * len(values))(*values), ctypes.POINTER(ctypes.c_int64))


def _strides(shape: Sequence[int]) -> list[int]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return strides[::-1]
