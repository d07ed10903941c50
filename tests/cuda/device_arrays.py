"""Arrays that say they are in a device's memory, at addresses that nobody reads."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

HOST, CUDA = 1, 2
_CODES = {"f32": (2, 32), "f16": (2, 16), "bf16": (4, 16)}


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (("dl_tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


@dataclass
class DeviceArray:
    """An array for DLPack. Keep it as long as what was made of it."""

    address: int
    shape: tuple[int, ...]
    dtype: str = "f32"
    device: tuple[int, int] = (CUDA, 0)
    strides: tuple[int, ...] | None = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **_: object) -> object:
        numbers = ctypes.c_int64 * len(self.shape)
        code, bits = _CODES[self.dtype]
        shape = numbers(*self.shape)
        strides = numbers(*self.strides) if self.strides else None
        tensor = _DLTensor(self.address, *self.device, len(self.shape), code, bits, 1, shape, strides, 0)
        self._kept = _DLManagedTensor(tensor, None, None)
        return _new_capsule(ctypes.addressof(self._kept), b"dltensor", None)
