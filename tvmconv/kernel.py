"""`Kernel`: one compiled convolution, loaded at its first call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .arrays import KERNEL_TYPES, aligned_copy, aligned_empty, kernel_input, kernel_output, result
from .bundle import Bundle, Entry
from .errors import InputError
from .library import load_function
from .packed import PACK_SYMBOL, PACKED_SYMBOL, PackedFilter
from .signature import parse_signature

# The launcher that is linked into each library has this twin of each function, which takes the number of threads first.
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
        self._functions: dict[str, Callable[..., object]] = {}
        problem = self.problem
        self._dtype, self._has_bias = problem.dtype, problem.bias
        self._shapes = (problem.data_shape, problem.filter_shape, problem.bias_shape)
        self._output_shape = problem.output_shape
        self._output_type = KERNEL_TYPES[problem.dtype]
        layout = entry.packed_filter
        if layout is None:  # the filter is read in place
            shape, dtype = problem.filter_shape, self._output_type
            self._layout = f"{'x'.join(map(str, shape))}-{problem.filter_format}-{problem.dtype}"
            self._packed_symbol = entry.symbol
        else:
            dtype = np.dtype(layout["dtype"])
            self._layout, shape = layout["layout"], (layout["bytes"] // dtype.itemsize,)
            self._packed_symbol = PACKED_SYMBOL
        self._packed = (shape, dtype)

    def __call__(self, data: Any, filter: Any, bias: Any = None, out: Any = None) -> Any:
        """Compute the convolution.

        Parameters
        ----------
        data, filter, bias
            NumPy arrays, torch CPU tensors, or arrays with ``__dlpack__``, of the shapes and the type of
            ``problem``. Read in place; copied only if not C-contiguous or not aligned to their element.
            `filter` may also be what :meth:`pack` returned, which saves the time that ``info.packed_filter`` costs.
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
        if type(filter) is PackedFilter:
            inputs = [kernel_input("data", data, dtype, shapes[0]), self._unpacked(filter)]
            symbol, filter = self._packed_symbol, None  # nobody else has its memory
        else:
            inputs = [kernel_input("data", data, dtype, shapes[0]), kernel_input("filter", filter, dtype, shapes[1])]
            symbol = self.info.symbol
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
            (self._functions.get(symbol) or self._load(symbol))(*inputs, output)
        return out if out is not None else result(output, dtype, data)

    def pack(self, filter: Any) -> PackedFilter:
        """Return the filter as this kernel wants it, to be given to many calls in its place.

        Where ``info.packed_filter`` is not None, a call with a plain filter lays it out anew each time; this does it
        once. It is a copy in any case.

        Parameters
        ----------
        filter
            As in a call; a PackedFilter is returned as it is.

        Raises
        ------
        InputError
            If the filter is not what the kernel takes.
        BundleError
            If the library is missing, altered, or cannot be loaded.
        """
        if type(filter) is PackedFilter:
            self._unpacked(filter)
            return filter
        array = kernel_input("filter", filter, self._dtype, self._shapes[1])
        if self.info.packed_filter is None:
            return PackedFilter(self._layout, aligned_copy(array))
        packed = aligned_empty(*self._packed)
        packed.fill(0)  # what no element fills too: equal filters give equal bytes
        (self._functions.get(PACK_SYMBOL) or self._load(PACK_SYMBOL))(array, packed)
        return PackedFilter(self._layout, packed)

    def _unpacked(self, filter: PackedFilter) -> np.ndarray:
        """Return the elements of a packed filter, if they are laid out as this kernel wants them."""
        shape, dtype = self._packed
        if filter.layout != self._layout:
            raise InputError(
                f"the filter is packed as {filter.layout}; this kernel takes {self._layout}: pack it with this kernel's pack()"
            )
        if filter.array.shape != shape or filter.array.dtype != dtype or not filter.array.flags.carray:
            raise InputError(
                f"the packed filter has shape {list(filter.array.shape)} and type {filter.array.dtype}, but its layout, "
                f"{filter.layout}, has shape {list(shape)} and type {dtype}: pack it again with this kernel's pack()"
            )
        return filter.array

    def __repr__(self) -> str:
        return f"<tvmconv.Kernel {self.info.signature} ({self.info.algorithm}, {self.info.target})>"

    def _load(self, symbol: str) -> Callable[..., object]:
        """Load a function of the library. Threads that come here together load it together, which does no harm."""
        name = symbol if self._threads is None else symbol + _WITH_THREADS
        function = load_function(self._bundle, self.info, name)
        self._functions[symbol] = function if self._threads is None else partial(function, self._threads)
        return self._functions[symbol]
