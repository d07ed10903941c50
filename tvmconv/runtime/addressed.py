"""`AddressedKernel`: a kernel that is called with the addresses of arrays, for callers who know that they fit."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from .dltensor import DLTensor

_INT, _DLTENSOR = 1, 7  # tvm-ffi's numbers of the types of arguments
_CPU = 1
_CODES = {"i": 0, "u": 1, "f": 2}  # DLPack's numbers of NumPy's kinds of types

Array = tuple[tuple[int, ...], "np.dtype[Any]"]


class _Any(ctypes.Structure):
    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_int64))


class _Frame:
    """The arguments of one call: the number of threads, then the arrays."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.tensors = tuple(DLTensor(None, _CPU, 0, len(shape), _CODES[dtype.kind], 8 * dtype.itemsize, 1, _numbers(shape), _numbers(_strides(shape)), 0) for shape, dtype in arrays)  # fmt: skip
        addresses = (_Any(_DLTENSOR, 0, ctypes.addressof(tensor)) for tensor in self.tensors)
        self.arguments = (_Any * (1 + len(arrays)))(_Any(_INT, 0, 1), *addresses)
        self.threads = self.arguments[0]
        self.result = _Any()


class AddressedKernel:
    """A function of a kernel's library. Nothing is checked, and calls are safe from several threads.

    A call takes a few microseconds less than one with arrays, which are looked at one by one. Made by
    :meth:`tvmconv.Kernel.addressed`.

    Parameters
    ----------
    path, symbol
        The library, and the function in it that takes the number of threads first.
    arrays
        Shape and type of each array.
    """

    def __init__(self, path: str, symbol: str, arrays: Sequence[Array]) -> None:
        self._arrays = tuple(arrays)
        self._name = symbol
        self._function = ctypes.CDLL(path)[f"__tvm_ffi_{symbol}"]
        # Frames that no call uses now; a list's pop and append are atomic.
        self._frames: list[_Frame] = []

    def __call__(self, threads: int, *addresses: int) -> None:
        """Compute with `threads` threads; the addresses are those of the inputs, in the problem's order, and the output.

        Raises
        ------
        RuntimeError
            If the kernel fails, for example of lack of memory.
        """
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = _Frame(self._arrays)
        frame.threads.value = threads
        for tensor, address in zip(frame.tensors, addresses, strict=True):
            tensor.data = address
        status = self._function(None, frame.arguments, len(frame.arguments), ctypes.byref(frame.result))
        self._frames.append(frame)
        if status:
            raise RuntimeError(f"{self._name} fails with status {status}")


def _numbers(values: Sequence[int]) -> Any:
    return ctypes.cast((ctypes.c_int64 * len(values))(*values), ctypes.POINTER(ctypes.c_int64))


def _strides(shape: Sequence[int]) -> list[int]:
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.append(strides[-1] * extent)
    return strides[::-1]
