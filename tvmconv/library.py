"""One kernel's library called directly, as a registry would call it but without one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm_ffi

from .fills import Arrays, numpy_dtype
from .problem import Problem


@dataclass(frozen=True)
class Call:
    """A kernel with its arguments in place.

    Attributes
    ----------
    run
        Computes the output.
    output
        Where the output goes, in the problem's dtype; not a number until `run` was called.
    """

    run: Callable[[], object]
    output: npt.NDArray[Any]


def open_library(path: str | os.PathLike[str], symbol: str, problem: Problem, arrays: Arrays) -> Call:
    """Load the library at `path` and return a call of its kernel `symbol` on `arrays`.

    Nothing is checked: a library that was not built for `problem` crashes.
    """
    # What a kernel fails to write shows: it stays not a number.
    output = np.full(problem.output_shape, np.nan, numpy_dtype(problem.dtype))
    arguments = [tvm_ffi.from_dlpack(_bits(array)) for array in (*arrays, output) if array is not None]
    kernel = tvm_ffi.load_module(str(path))[symbol]
    return Call(lambda: kernel(*arguments), output)


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `array` as kernels take it: bfloat16 as its bits in uint16."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
