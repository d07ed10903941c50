"""Load a kernel's library."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import BundleError
from .bundle import Bundle, Entry

# Looks at a kernel before it is first used, and raises if it must not be.
BeforeUse = Callable[[Bundle, Entry], object]

# Each path's files that this process loaded, by device and inode; a library stays loaded, so its inode is not given to another.
_LOADED: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)


def open_library(path: Path) -> Any:
    """Return the module in a shared library.

    The loader knows libraries by their paths: of a file that was replaced since it gives the old one. A path with another
    `/.` in it is the same file, and new to the loader.

    Raises
    ------
    OSError, RuntimeError
        If it is missing, or cannot be loaded.
    """
    import tvm_ffi

    path = Path(os.path.realpath(path))
    status = path.stat()
    files, file = _LOADED[str(path)], (status.st_dev, status.st_ino)
    if file not in files:
        files.append(file)
    return tvm_ffi.load_module(f"{path.parent}/{'./' * files.index(file)}{path.name}")


def load_function(bundle: Bundle, entry: Entry, symbol: str) -> Callable[..., object]:
    """Return the function `symbol` of an entry's library, after checking that the library is the one that was built.

    Raises
    ------
    BundleError
        If the library is missing, altered, or cannot be loaded.
    """
    path = bundle.library(entry)
    try:
        function: Callable[..., object] = open_library(path)[symbol]
    except (AttributeError, RuntimeError, OSError) as error:
        hint = "; install GNU OpenMP (Debian, Ubuntu: apt install libgomp1)" if "libgomp" in str(error) else ""
        raise BundleError(f"cannot load {symbol} from {path}: {str(error).strip()}{hint}") from error
    return function
