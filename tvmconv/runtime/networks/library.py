"""A library's functions by tvm-ffi's C ABI, without its Python package, which imports an installed PyTorch.

That takes seconds, and a network's library, whose arguments are integers, does not need the package.
"""

from __future__ import annotations

import builtins
import ctypes
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from ...errors import BundleError, OutOfRangeError
from ..loading import loadable

_INT = 1  # kTVMFFIInt


class _Bytes(ctypes.Structure):  # TVMFFIByteArray
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))

    def __str__(self) -> str:
        return ctypes.string_at(self.data, self.size).decode(errors="replace")


class _Error(ctypes.Structure):  # TVMFFIObject, and the beginning of TVMFFIErrorCell behind it
    _fields_ = (("header", ctypes.c_uint64 * 3), ("kind", _Bytes), ("message", _Bytes))


class _Frame:
    """Arguments and result of a call, reused by later calls."""

    def __init__(self, function: Callable[..., int], count: int) -> None:
        # Each TVMFFIAny is a type and a value.
        self.arguments, self.result = (ctypes.c_int64 * (2 * count))(*(_INT, 0) * count), (ctypes.c_int64 * 2)()
        self.places = range(1, 2 * count, 2)
        self.run = partial(function, None, self.arguments, count, self.result)


class NativeLibrary:
    """A library whose functions take integers, and return one or nothing.

    Raises
    ------
    OSError
        If it is missing or truncated, or cannot be loaded.
    BundleError
        If tvm-ffi is not installed.
    """

    def __init__(self, path: Path) -> None:
        self._ffi = _ffi()
        self._library = ctypes.CDLL(loadable(path))

    def __getitem__(self, name: str) -> Callable[..., int]:
        """Return a function by its name; raise AttributeError if there is none. Its errors have the classes that they name."""
        function, failed = self._library[f"__tvm_ffi_{name}"], self._failed
        frames: defaultdict[int, list[_Frame]] = defaultdict(list)  # not in use; pop and append are atomic

        def call(*numbers: int) -> int:
            free = frames[len(numbers)]
            try:
                frame = free.pop()
            except IndexError:
                frame = _Frame(function, len(numbers))
            arguments = frame.arguments
            for place, number in zip(frame.places, numbers, strict=False):
                arguments[place] = number
            status, result = frame.run(), frame.result[1]
            free.append(frame)
            if status:
                raise failed()
            return result

        return call

    def _failed(self) -> Exception:
        """Return the error that a function raised."""
        handle = ctypes.c_void_p()
        self._ffi.TVMFFIErrorMoveFromRaised(ctypes.byref(handle))
        if not handle.value:
            return RuntimeError("a function failed, and does not say why")
        error = _Error.from_address(handle.value)
        name, message = str(error.kind), str(error.message)
        kind = OutOfRangeError if name == "IndexError" else getattr(builtins, name, RuntimeError)
        self._ffi.TVMFFIObjectDecRef(handle)
        return kind(message)


# Name of tvm-ffi's library in its wheels for other systems than Linux.
_NAMES = {"win32": "tvm_ffi.dll", "darwin": "libtvm_ffi.dylib"}


@cache
def _ffi() -> ctypes.CDLL:
    """Return tvm-ffi's library, loaded so that kernels' libraries can resolve its symbols."""
    package = find_spec("tvm_ffi")
    if package is None or package.origin is None:
        raise BundleError("tvm-ffi, which compiled networks need, is not installed: pip install apache-tvm-ffi")
    path = Path(package.origin).parent / "lib" / _NAMES.get(sys.platform, "libtvm_ffi.so")
    if not path.exists():  # not installed from a wheel: ask the package
        return import_module("tvm_ffi").LIB
    return ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
