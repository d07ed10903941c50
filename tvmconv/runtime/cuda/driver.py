"""The NVIDIA driver by ctypes: calls that raise errors, contexts, memory, streams and events.

CUDA's toolkit is not needed, and the driver is loaded at the first use. Functions have the names of the CUDA Driver API
reference.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint64, c_void_p
from functools import cache

from ...errors import CudaError

LIBRARY = "libcuda.so.1"
# Kernels are loaded independently of contexts (cuLibraryLoadData), which needs CUDA 12.0.
LEAST_VERSION = 12000
# CU_STREAM_LEGACY, with which blocking streams synchronize; DLPack's number for it is 1, too.
LEGACY_STREAM = 1
_NOT_READY = 600  # CUDA_ERROR_NOT_READY


class Driver:
    """The driver, loaded, and of a sufficient version.

    Raises
    ------
    CudaError
        If there is no driver, it is too old, or it finds no GPU.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise CudaError(f"this machine has no NVIDIA driver ({error})") from None
        version = c_int()
        self.call("cuDriverGetVersion", byref(version))
        self.version: int = version.value
        if self.version < LEAST_VERSION:
            raise CudaError(
                f"the NVIDIA driver is for CUDA {version_text(self.version)}, and kernels need one for "
                f"{version_text(LEAST_VERSION)} or newer; update the driver"
            )
        self.call("cuInit", 0)
        self._contexts: dict[int, c_void_p] = {}

    def call(self, name: str, *arguments: object) -> None:
        """Call the driver's function `name`; raise CudaError if it fails, or the driver lacks it."""
        code = self.code(name, *arguments)
        if code:
            raise CudaError(f"{name} failed: {self._explain(code)}")

    def code(self, name: str, *arguments: object) -> int:
        """Call the driver's function `name` and return its code, 0 for success."""
        function = getattr(self._library, name, None)
        if function is None:
            raise CudaError(f"the NVIDIA driver has no {name}: it is too old; update the driver")
        code: int = function(*arguments)
        return code

    def _explain(self, code: int) -> str:
        name, text = c_char_p(), c_char_p()
        self._library.cuGetErrorName(code, byref(name))
        self._library.cuGetErrorString(code, byref(text))
        return f"{(text.value or b'unknown error').decode()} ({(name.value or b'error').decode()}, {code})"

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        """Make the device's primary context, which the CUDA runtime shares, current in this thread."""
        if index not in self._contexts:
            device, context = c_int(), c_void_p()
            self.call("cuDeviceGet", byref(device), index)
            self.call("cuDevicePrimaryCtxRetain", byref(context), device)
            self._contexts[index] = context
        self.call("cuCtxPushCurrent_v2", self._contexts[index])
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def create(self, name: str, *arguments: object) -> c_void_p:
        """Call a function that writes a handle through its first argument; return that."""
        handle = c_void_p()
        self.call(name, byref(handle), *arguments)
        return handle

    def create_from(self, name: str, *arguments: object) -> c_void_p:
        """Call a function that writes a handle through its last argument; return that."""
        handle = c_void_p()
        self.call(name, *arguments, byref(handle))
        return handle

    def allocate(self, nbytes: int) -> int:
        """Return the address of new device memory; free it with ``cuMemFree_v2``."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", byref(address), c_size_t(max(nbytes, 1)))
        return address.value

    def event(self, *, timing: bool = False) -> c_void_p:
        """Return a new event."""
        return self.create("cuEventCreate", 0 if timing else 2)  # 2: CU_EVENT_DISABLE_TIMING

    def is_done(self, event: c_void_p) -> bool:
        """Return whether all work before the event's record has finished."""
        code = self.code("cuEventQuery", event)
        if code not in (0, _NOT_READY):
            raise CudaError(f"cuEventQuery failed: {self._explain(code)}")
        return code == 0

    def elapsed(self, start: c_void_p, end: c_void_p) -> float:
        """Return the seconds between two events of one stream, both done."""
        milliseconds = c_float()
        self.call("cuEventElapsedTime", byref(milliseconds), start, end)
        return milliseconds.value * 1e-3


@cache
def driver() -> Driver:
    """Return this process's driver; errors as for :class:`Driver`."""
    return Driver()


def version_text(version: int) -> str:
    """Return a CUDA version as text: ``13.0`` for 13000."""
    return f"{version // 1000}.{version % 1000 // 10}"
