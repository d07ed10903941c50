"""Device arrays of libraries of which only DLPack's protocol is used (JAX, tvm-ffi, ...).

Each array is exported for the kernel's stream, the legacy default one unless the library of `data` has another. Arrays are kept
alive until the kernel has finished, since their library may reuse freed memory at once. An importer of the result waits on the
device for the kernel. No function here synchronizes with the host.
"""

from __future__ import annotations

import threading
from collections import deque
from ctypes import c_void_p
from typing import Any

from ...errors import InputError
from ..dltensor import ALIGNMENT
from .driver import LEGACY_STREAM, driver

_held: deque[tuple[Event, tuple[Any, ...]]] = deque()
_lock = threading.Lock()


class Dlpack:
    """Arrays of any library."""

    def device(self, value: Any) -> int:
        """Return the number of the array's GPU."""
        return int(value.__dlpack_device__()[1])

    def stream(self, device: int) -> int:
        """Return the legacy default stream."""
        return LEGACY_STREAM

    def is_ready(self, value: Any, dtype: str, shape: tuple[int, ...], gpu: int) -> bool:
        """Return whether the array is known to be ready: never."""
        return False

    def take(self, value: Any, stream: int, writable: bool) -> Any:
        """Return tvm-ffi's tensor on the same memory, ready on `stream`."""
        if writable and type(value).__module__.partition(".")[0] in ("jax", "jaxlib"):
            raise ValueError("is JAX's, whose arrays cannot be written; use the array that the call returns")
        try:
            tensor = import_on(value, stream)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"cannot be read through DLPack: {error}") from error
        if not tensor.is_contiguous() or tensor.data_ptr() % ALIGNMENT:
            raise ValueError(f"must be C-contiguous and aligned to {ALIGNMENT} bytes; make a copy of it that is")
        return tensor

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """Return a new array, by the array API standard."""
        return _namespace(like).empty(shape, dtype=like.dtype, device=like.device)

    def scratch(self, nbytes: int, like: Any) -> Any:
        """Return tvm-ffi's tensor of bytes."""
        library = _namespace(like)
        return import_on(library.empty((nbytes,), dtype=library.uint8, device=like.device), LEGACY_STREAM)

    def is_capturing(self) -> bool:
        """Return whether a graph has a pool of its own: never."""
        return False


DLPACK = Dlpack()


class Event:
    """A point in a stream's work."""

    def __init__(self, gpu: int, stream: int) -> None:
        self._driver, self._gpu = driver(), gpu
        with self._driver.device(gpu):
            self._handle = self._driver.event()
            self._driver.call("cuEventRecord", self._handle, c_void_p(stream))

    def __del__(self) -> None:
        self._driver.code("cuEventDestroy_v2", self._handle)

    def hold_back(self, stream: int) -> None:
        """Let later work of `stream` wait for the event."""
        with self._driver.device(self._gpu):
            self._driver.call("cuStreamWaitEvent", c_void_p(stream), self._handle, 0)

    def is_past(self) -> bool:
        """Return whether the stream has passed the event."""
        return self._driver.is_done(self._handle)


class _Finished:
    """An array whose content is valid after an event, for imports by DLPack."""

    def __init__(self, array: Any, event: Event) -> None:
        self._array, self._event = array, event

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        if stream != -1:  # -1: the importer wants no synchronization
            self._event.hold_back(LEGACY_STREAM if stream is None else stream)
        return self._array.__dlpack__(stream=stream, **options)


class _OnStream:
    """An array exported for work on one stream, whatever stream its importer names."""

    def __init__(self, array: Any, stream: int) -> None:
        # DLPack forbids 0, which is ambiguous.
        self._array, self._stream = array, stream or LEGACY_STREAM

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(stream=self._stream, **options)


def import_on(value: Any, stream: int) -> Any:
    """Return tvm-ffi's tensor of an array, ready on `stream`."""
    import tvm_ffi

    return tvm_ffi.from_dlpack(_OnStream(value, stream))


def keep(taken: tuple[Any, ...], gpu: int, stream: int) -> Event:
    """Keep tensors alive until the present work of a GPU's `stream` is done; return the event at its end."""
    event = Event(gpu, stream)
    with _lock:
        while _held and _held[0][0].is_past():
            _held.popleft()
        _held.append((event, taken))
    return event


def finish(output: Any, event: Event) -> Any:
    """Return an output as its library's array, for which the library waits on the device until `event`."""
    return _namespace(output).from_dlpack(_Finished(output, event))


def _namespace(value: Any) -> Any:
    if hasattr(value, "__array_namespace__"):
        return value.__array_namespace__()
    raise InputError(
        f"data is a {type(value).__name__}, whose library cannot allocate here; give out=, or arrays of torch, CuPy or JAX"
    )
