"""Arrays on a GPU by the driver alone, for where no array library is at hand: verifying, tuning and timing kernels."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p, py_object
from typing import Any

import numpy as np
import numpy.typing as npt

from .cuda_driver import driver

_CUDA = 2
# Codes of DLDataType.
_FLOAT, _BFLOAT, _UNSIGNED = 2, 4, 1


class _DLManagedTensor(ctypes.Structure):
    """From dlpack.h, flattened."""

    _fields_ = (
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", ctypes.POINTER(c_int64)), ("strides", c_void_p),
        ("byte_offset", c_uint64), ("manager_ctx", c_void_p), ("deleter", c_void_p),
    )  # fmt: skip


# What importers hold: by the address of its description, that and the array.
_exports: dict[int, tuple[_DLManagedTensor, DeviceArray]] = {}


def _release(address: int) -> None:
    """Let go what an importer held."""
    del _exports[address]


def _forget(capsule: int) -> None:
    """Let go what nobody imported; an importer renames its capsule."""
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = c_void_p, [c_void_p, ctypes.c_char_p]
    if ctypes.pythonapi.PyCapsule_IsValid(c_void_p(capsule), b"dltensor"):
        _release(address(capsule, b"dltensor"))


# CFUNCTYPE, because an importer may have let go of Python's lock.
_callback = ctypes.CFUNCTYPE(None, c_void_p)
_RELEASE, _FORGET = _callback(_release), _callback(_forget)


class Gpu:
    """A GPU as the array API has devices."""

    def __init__(self, index: int) -> None:
        self.index = index


class DeviceArray:
    """A C-contiguous array in a GPU's memory, which it owns.

    Parameters
    ----------
    shape, dtype
        As NumPy's.
    gpu
        The GPU's number.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], gpu: int = 0) -> None:
        self.shape, self.dtype, self.device = shape, np.dtype(dtype), Gpu(gpu)
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
        """Return a copy in the CPU's memory, after all work of the legacy default stream."""
        array = np.empty(self.shape, self.dtype)
        with self._driver.device(self.device.index):
            content = c_void_p(array.ctypes.data)
            self._driver.call("cuMemcpyDtoH_v2", content, c_uint64(self.address), c_size_t(self.nbytes))
        return array

    def fill(self, byte: int) -> None:
        """Set every byte; 255 makes every element of a floating point type not a number."""
        with self._driver.device(self.device.index):
            self._driver.call("cuMemsetD8_v2", c_uint64(self.address), c_uint8(byte), c_size_t(self.nbytes))

    def __del__(self) -> None:
        if hasattr(self, "address"):
            with self._driver.device(self.device.index):
                self._driver.code("cuMemFree_v2", c_uint64(self.address))

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_CUDA, self.device.index)

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        """Return a capsule whose importer keeps this array alive; there is no work on it that `stream` could wait for."""
        code = {"bfloat16": _BFLOAT, "uint8": _UNSIGNED}.get(self.dtype.name, _FLOAT)
        extents = (c_int64 * len(self.shape))(*self.shape)
        exported = _DLManagedTensor(
            self.address, _CUDA, self.device.index, len(self.shape), code, 8 * self.dtype.itemsize, 1, extents
        )
        exported.deleter = ctypes.cast(_RELEASE, c_void_p)
        _exports[ctypes.addressof(exported)] = (exported, self)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = py_object, [c_void_p, ctypes.c_char_p, c_void_p]
        return new(ctypes.addressof(exported), b"dltensor", ctypes.cast(_FORGET, c_void_p))

    def __array_namespace__(self) -> Any:
        return _Namespace


class _Namespace:
    """What the array API has to make arrays."""

    uint8 = np.dtype(np.uint8)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: np.dtype[Any], device: Gpu) -> DeviceArray:
        """Return an array of any content."""
        return DeviceArray(shape, dtype, device.index)
