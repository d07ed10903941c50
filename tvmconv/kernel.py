"""`Kernel`: one compiled convolution, loaded at its first call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .arrays import KERNEL_TYPES, kernel_input, kernel_output, result
from .bundle import Bundle, Entry
from .errors import InputError
from .library import load_function
from .signature import parse_signature

# The launcher that is linked into each library has this twin of the kernel, which takes the number of threads first.
_WITH_THREADS = "_with_threads"


class Kernel:
    """A compiled convolution of fixed shapes, types and attributes.

    Its library is checked and loaded at the first call. Calls are safe from several threads and after
    ``fork``.

    Parameters
    ----------
    bundle, entry
        The bundle and which of its kernels.
    threads
        Number of threads of a call; None: as many as OpenMP gives (``OMP_NUM_THREADS``).

    Attributes
    ----------
    info : Entry
        What the bundle says of this kernel.
    problem : Problem
        The convolution it computes.
    """

    def __init__(self, bundle: Bundle, entry: Entry, threads: int | None = None) -> None:
        self.info = entry
        self.problem = parse_signature(entry.signature)
        self._bundle = bundle
        self._threads = threads
        self._function: Callable[..., object] | None = None
        problem = self.problem
        self._dtype, self._has_bias = problem.dtype, problem.bias
        self._shapes = (problem.data_shape, problem.filter_shape, problem.bias_shape)
        self._output_shape = problem.output_shape
        self._output_type = KERNEL_TYPES[problem.dtype]

    def __call__(self, data: Any, filter: Any, bias: Any = None, out: Any = None) -> Any:
        """Compute the convolution.

        Parameters
        ----------
        data, filter, bias
            NumPy arrays, torch CPU tensors, or arrays with ``__dlpack__``, of the shapes and the type of
            ``problem``. Read in place; copied only if not C-contiguous or not aligned to their element.
        out
            Where the result goes: writable, C-contiguous, sharing no memory with an input.

        Returns
        -------
        array
            `out` if given, else a new array of the kind of `data`.

        Raises
        ------
        InputError
            If an array is not what the kernel takes.
        BundleError
            At the first call, if the library is missing, altered, or cannot be loaded.
        """
        dtype, shapes = self._dtype, self._shapes
        inputs = [kernel_input("data", data, dtype, shapes[0]), kernel_input("filter", filter, dtype, shapes[1])]
        if self._has_bias:
            if bias is None:
                raise InputError("bias is missing; this kernel adds one")
            inputs.append(kernel_input("bias", bias, dtype, shapes[2]))
        elif bias is not None:
            raise InputError("bias was given, but this kernel adds none; use the kernel whose signature ends in -bias")
        if out is None:
            output = np.empty(self._output_shape, self._output_type)
        else:
            output = kernel_output(out, dtype, self._output_shape, inputs, (data, filter, bias))
        if output.size:
            (self._function or self._load())(*inputs, output)
        return out if out is not None else result(output, dtype, data)

    def __repr__(self) -> str:
        return f"<tvmconv.Kernel {self.info.signature} ({self.info.algorithm}, {self.info.target})>"

    def _load(self) -> Callable[..., object]:
        """Load the library. Threads that come here together load it together, which does no harm."""
        symbol = self.info.symbol if self._threads is None else self.info.symbol + _WITH_THREADS
        function = load_function(self._bundle, self.info, symbol)
        self._function = function if self._threads is None else partial(function, self._threads)
        return self._function
