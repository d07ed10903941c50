"""Load a kernel's library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import BundleError
from .bundle import Bundle, Entry
from .loading import loadable

# Check of a kernel before its first use; raises if it must not be used.
BeforeUse = Callable[[Bundle, Entry], object]


def open_library(path: Path) -> Any:
    """Return the module in a shared library.

    Raises
    ------
    OSError, RuntimeError
        If it is missing or truncated, or cannot be loaded.
    """
    import tvm_ffi

    return tvm_ffi.load_module(loadable(path))


def load_function(bundle: Bundle, entry: Entry, symbol: str) -> Callable[..., object]:
    """Return the function `symbol` of an entry's library, after checking the library's sha256.

    Raises
    ------
    BundleError
        If the library is missing, altered, or cannot be loaded.
    """
    path = bundle.library(entry)
    try:
        function: Callable[..., object] = open_library(path)[symbol]
    except (AttributeError, RuntimeError, OSError) as error:
        # Libraries from before the launcher had its own threads need GNU OpenMP.
        hint = "; install GNU OpenMP (Debian, Ubuntu: apt install libgomp1)" if "libgomp" in str(error) else ""
        raise BundleError(f"cannot load {symbol} from {path}: {str(error).strip()}{hint}") from error
    return function
