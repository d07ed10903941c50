"""Slice a tensor of tvm-ffi, which has no slices of its own, by DLPack."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from ...dtypes import DTYPE_BYTES, ROWS
from ..dltensor import CUDA, DLManagedTensor, DLTensor, capsule


class Slice:
    """A slice of a C-contiguous tensor's images, to be imported by DLPack.

    Keep it alive as long as its imports: it owns the shape, and a reference to the tensor.
    """

    def __init__(self, tensor: Any, images: slice, dtype: str, gpu: int) -> None:
        self._owner, self._gpu = tensor, gpu
        shape = (images.stop - images.start, *tensor.shape[1:])
        address = tensor.data_ptr() + images.start * prod(shape[1:]) * DTYPE_BYTES[dtype]
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        bits = 8 * DTYPE_BYTES[dtype]
        described = DLTensor(address, CUDA, gpu, len(shape), ROWS[dtype].dlpack, bits, 1, self._shape, None, 0)
        self._managed = DLManagedTensor(described, None, None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self._gpu

    def __dlpack__(self, **_: object) -> Any:
        return capsule(self._managed)
