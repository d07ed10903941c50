"""DLPack's structures (dlpack.h, version 0), for memory that belongs to no array library."""

from __future__ import annotations

import ctypes
from typing import Any

# DLDeviceType.
CUDA = 2
# Alignment of pointers that a GPU kernel may assume: its widest loads have 16 bytes.
ALIGNMENT = 16
# DLDataTypeCode.
UNSIGNED, FLOAT, BFLOAT = 1, 2, 4


class DLTensor(ctypes.Structure):
    """A tensor's memory, type and shape."""

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


class DLManagedTensor(ctypes.Structure):
    """A tensor with its deleter; None where its owner keeps the memory."""

    _fields_ = (("tensor", DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


def capsule(managed: DLManagedTensor, destructor: ctypes.c_void_p | None = None) -> Any:
    """Return a ``__dlpack__`` capsule; the caller must keep `managed` alive as long as its imports.

    Parameters
    ----------
    destructor
        C function that is called with the capsule when it is freed.
    """
    return _new_capsule(ctypes.addressof(managed), b"dltensor", destructor)
