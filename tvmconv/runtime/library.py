"""Load a kernel's library."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import BundleError
from .bundle import Bundle, Entry

# Looks at a kernel before it is first used, and raises if it must not be.
BeforeUse = Callable[[Bundle, Entry], object]


def load_function(bundle: Bundle, entry: Entry, symbol: str) -> Callable[..., object]:
    """Return the function `symbol` of an entry's library, after checking that the library is the one that was built.

    Raises
    ------
    BundleError
        If the library is missing, altered, or cannot be loaded.
    """
    path = bundle.library(entry)
    import tvm_ffi

    try:
        function: Callable[..., object] = tvm_ffi.load_module(path)[symbol]
    except (AttributeError, RuntimeError, OSError) as error:
        hint = "; install GNU OpenMP (Debian, Ubuntu: apt install libgomp1)" if "libgomp" in str(error) else ""
        raise BundleError(f"cannot load {symbol} from {path}: {str(error).strip()}{hint}") from error
    return function
