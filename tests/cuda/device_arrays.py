"""Arrays that say they are in a device's memory, at addresses that nobody reads."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from tvmconv.dtypes import DTYPE_BYTES, ROWS
from tvmconv.runtime.dltensor import DLManagedTensor, DLTensor, capsule

HOST, CUDA = 1, 2


@dataclass
class DeviceArray:
    """An array for DLPack. Keep it as long as its imports."""

    address: int
    shape: tuple[int, ...]
    dtype: str = "f32"
    device: tuple[int, int] = (CUDA, 0)
    strides: tuple[int, ...] | None = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **_: object) -> object:
        numbers = ctypes.c_int64 * len(self.shape)
        code, bits = ROWS[self.dtype].dlpack, 8 * DTYPE_BYTES[self.dtype]
        shape = numbers(*self.shape)
        strides = numbers(*self.strides) if self.strides else None
        tensor = DLTensor(self.address, *self.device, len(self.shape), code, bits, 1, shape, strides, 0)
        self._kept = DLManagedTensor(tensor, None, None)
        return capsule(self._kept)
