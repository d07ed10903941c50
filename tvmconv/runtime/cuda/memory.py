"""Arrays on a GPU without an array library, by the driver alone: for verifying, tuning and timing kernels."""

from __future__ import annotations

import ctypes
from ctypes import c_int64, c_size_t, c_uint8, c_uint64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dltensor import BFLOAT, CUDA, FLOAT, UNSIGNED, DLManagedTensor, DLTensor, capsule
from .driver import driver

# Live exports by the address of their DLManagedTensor: that, its shape, and the array.
_exports: dict[int, tuple[DLManagedTensor, Any, DeviceArray]] = {}


def _release(address: int) -> None:
    """Drop an export that its importer has released."""
    del _exports[address]


def _forget(address: int) -> None:
    """Drop an export whose capsule was never imported; an importer renames it."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c_void_p, [c_void_p, ctypes.c_char_p]
    if ctypes.pythonapi.PyCapsule_IsValid(c_void_p(address), b"dltensor"):
        _release(pointer(address, b"dltensor"))


# CFUNCTYPE, because an importer may not hold the GIL.
_callback = ctypes.CFUNCTYPE(None, c_void_p)
_RELEASE, _FORGET = _callback(_release), _callback(_forget)


class Device:
    """A GPU as a device of the array API."""

    def __init__(self, index: int) -> None:
        self.index = index


class DeviceArray:
    """A C-contiguous array that owns its memory on a GPU."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], gpu: int = 0) -> None:
        self.shape, self.dtype, self.device = shape, np.dtype(dtype), Device(gpu)
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * self.dtype.itemsize
        self._driver = driver()
        with self._driver.device(gpu):
            self.address = self._driver.allocate(self.nbytes)

    @classmethod
    def of(cls, array: npt.NDArray[Any], gpu: int = 0) -> DeviceArray:
        """Return a copy of `array` on a GPU."""
        array = np.ascontiguousarray(array)
        made = cls(array.shape, array.dtype, gpu)
        with made._driver.device(gpu):
            content = c_void_p(array.ctypes.data)
            made._driver.call("cuMemcpyHtoD_v2", c_uint64(made.address), content, c_size_t(made.nbytes))
        return made

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy in the CPU's memory, after all work on the legacy default stream."""
        array = np.empty(self.shape, self.dtype)
        with self._driver.device(self.device.index):
            content = c_void_p(array.ctypes.data)
            self._driver.call("cuMemcpyDtoH_v2", content, c_uint64(self.address), c_size_t(self.nbytes))
        return array

    def fill(self, byte: int) -> None:
        """Set every byte; 255 makes every floating element NaN."""
        with self._driver.device(self.device.index):
            self._driver.call("cuMemsetD8_v2", c_uint64(self.address), c_uint8(byte), c_size_t(self.nbytes))

    def __del__(self) -> None:
        if hasattr(self, "address"):
            with self._driver.device(self.device.index):
                self._driver.code("cuMemFree_v2", c_uint64(self.address))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, self.device.index)

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        """Return a capsule whose importer keeps this array alive; no work on the array is pending for `stream` to wait for."""
        code = {"bfloat16": BFLOAT, "uint8": UNSIGNED}.get(self.dtype.name, FLOAT)
        rank, bits = len(self.shape), 8 * self.dtype.itemsize
        extents = (c_int64 * rank)(*self.shape)
        tensor = DLTensor(self.address, CUDA, self.device.index, rank, code, bits, 1, extents, None, 0)
        exported = DLManagedTensor(tensor, None, ctypes.cast(_RELEASE, c_void_p))
        _exports[ctypes.addressof(exported)] = (exported, extents, self)
        return capsule(exported, ctypes.cast(_FORGET, c_void_p))

    def __array_namespace__(self) -> Any:
        return _Namespace


class _Namespace:
    """The array API's functions that create arrays."""

    uint8 = np.dtype(np.uint8)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: np.dtype[Any], device: Device) -> DeviceArray:
        """Return an array of any content."""
        return DeviceArray(shape, dtype, device.index)
