"""`Kernel`: one compiled convolution, loaded at its first call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ..errors import InputError
from ..problem import Problem
from ..signature import parse_signature
from .arrays import KERNEL_TYPES, aligned_copy, check_operands, kernel_input, kernel_output, of_torch, result
from .bundle import Bundle, Entry
from .library import BeforeUse, load_function
from .packed import PACK_SYMBOL, PACKED, PACKED_SYMBOL, PackedFilter, PackedFilters, plain_layout
from .pages import zeros
from .processors import kernel_threads

_OTHERS = ("bias", "scale", "slope", "residual")  # operands beside data and filter
# Suffixes of each function's twins in the launcher, whose first argument is the number of threads: of the kernels' pool, or of
# OpenMP, which PyTorch uses, too.
_WITH_THREADS, _WITH_OPENMP = "_with_threads", "_with_openmp"


class Kernel:
    """A compiled convolution of fixed shapes, types and attributes.

    Its library is checked and loaded at the first call. Calls are safe from several threads and after
    ``fork``.

    Parameters
    ----------
    bundle, entry
        The bundle, and the kernel's entry in it.
    threads
        Number of threads of a call; None: by the number of processors, or ``OMP_NUM_THREADS`` if that is less.
    before
        Called with the kernel's bundle and entry before its library is first used; its errors are the call's.
    problem
        The problem of the entry's signature, if it is parsed already.

    Attributes
    ----------
    info : Entry
        The kernel's entry in the bundle.
    problem : Problem
        The convolution it computes.
    """

    def __init__(
        self,
        bundle: Bundle,
        entry: Entry,
        threads: int | None = None,
        before: BeforeUse | None = None,
        problem: Problem | None = None,
    ) -> None:
        self.info = entry
        self._before = before
        self.problem = problem or parse_signature(entry.signature)
        self._bundle = bundle
        self._threads = threads
        self._functions: dict[tuple[str, bool], Callable[..., object]] = {}
        problem = self.problem
        self._types = problem.types
        self._shapes = (problem.data_shape, problem.filter_shape)
        self._others = tuple((name, *array) for name, array in problem.operands.items())[2:]
        taken = [name for name, *_ in self._others]
        self._present = tuple(name in taken for name in _OTHERS)
        self._output_shape = problem.output_shape
        self._output_type = KERNEL_TYPES[problem.types.output]
        layout = entry.packed_filter
        if layout is None:  # the filter is read in place
            shape, dtype = problem.filter_shape, KERNEL_TYPES[problem.types.filter]
            self._layout = plain_layout(problem)
            self._packed_symbol = entry.symbol
        else:
            dtype = np.dtype(layout["dtype"])
            self._layout, shape = layout["layout"], (layout["bytes"] // dtype.itemsize,)
            self._packed_symbol = PACKED_SYMBOL
        self._packed = (shape, dtype)

    def __call__(
        self,
        data: Any,
        filter: Any,
        bias: Any = None,
        out: Any = None,
        *,
        scale: Any = None,
        slope: Any = None,
        residual: Any = None,
    ) -> Any:
        """Compute the convolution.

        Parameters
        ----------
        data, filter, bias
            NumPy arrays, torch CPU tensors, or arrays with ``__dlpack__``, of the shapes and the type of
            ``problem``. Read in place; copied only if not C-contiguous or not aligned to their element.
            `filter` may also be a result of :meth:`pack`, which saves packing it in each call.
        scale, slope, residual
            Operands of the epilogue: f32 factors of each channel, for ``scale`` and for ``prelu``, and the summand of ``add``.
        out
            Array for the result: writable, C-contiguous, sharing no memory with an input.

        Returns
        -------
        array
            `out` if given, else a new array of the library of `data`.

        Raises
        ------
        InputError
            If an array does not fit the kernel.
        BundleError
            At the first call, if the library is missing, altered, or cannot be loaded.
        VerificationError
            If the bundle was loaded with ``verify="first-use"`` and the kernel is wrong.
        """
        types, shapes = self._types, self._shapes
        packed = None
        if isinstance(filter, PACKED):
            inputs = [kernel_input("data", data, types.data, shapes[0]), self._elements(filter)]
            packed, filter = filter, None  # `out` cannot share its memory
        else:
            inputs = [
                kernel_input("data", data, types.data, shapes[0]),
                kernel_input("filter", filter, types.filter, shapes[1]),
            ]
        others = (bias, scale, slope, residual)
        if (bias is not None, scale is not None, slope is not None, residual is not None) != self._present:
            check_operands(self.info.signature, self._others, dict(zip(_OTHERS, others, strict=True)))
        for name, shape, kind in self._others:
            inputs.append(kernel_input(name, others[_OTHERS.index(name)], kind, shape))
        if out is None:
            output = np.empty(self._output_shape, self._output_type)
        else:
            output = kernel_output(out, types.output, self._output_shape, inputs, (data, filter, *others))
        if output.size:
            self._run(inputs, output, packed, of_torch(data))
        return out if out is not None else result(output, types.output, data)

    def _run(
        self,
        inputs: Sequence[np.ndarray],
        output: np.ndarray,
        packed: PackedFilter | PackedFilters | None,
        openmp: bool = False,
    ) -> None:
        """Compute with checked arrays, by OpenMP's threads or the pool's.

        `packed` is the filter's packed form, if `inputs` has that.
        """
        symbol = self.info.symbol if packed is None else self._packed_symbol
        (self._functions.get((symbol, openmp)) or self._load(symbol, openmp))(*inputs, output)

    def pack(self, filter: Any) -> PackedFilter | PackedFilters:
        """Return the filter packed for this kernel, to be given to calls in the place of the plain one.

        If ``info.packed_filter`` is not None, each call with a plain filter packs it anew. The result is always a copy.

        Parameters
        ----------
        filter
            As in a call; a packed filter is returned as it is.

        Returns
        -------
        PackedFilter or PackedFilters
            The latter if the kernel calls others with several layouts.

        Raises
        ------
        InputError
            If the filter does not fit the kernel.
        BundleError
            If the library is missing, altered, or cannot be loaded.
        """
        if isinstance(filter, PACKED):
            self._elements(filter)
            return filter
        array = kernel_input("filter", filter, self._types.filter, self._shapes[1])
        if self.info.packed_filter is None:
            return PackedFilter(self._layout, aligned_copy(array))
        packed = zeros(*self._packed)  # padding is 0: equal filters give equal bytes
        (self._functions.get((PACK_SYMBOL, False)) or self._load(PACK_SYMBOL))(array, packed)
        return PackedFilter(self._layout, packed)

    @property
    def filter_layout(self) -> str:
        """Name of its packed filters' layout."""
        return self._layout

    def packed_from(self, content: np.ndarray) -> PackedFilter:
        """Return the packed filter with the bytes of `content`, on the same memory if that begins at a cache line.

        Raises
        ------
        InputError
            If their number is not that of this kernel's packed filters.
        """
        shape, dtype = self._packed
        if content.nbytes != dtype.itemsize * prod(shape):
            raise InputError(
                f"the packed filter has {content.nbytes} bytes; {self._layout} has {dtype.itemsize * prod(shape)}"
            )
        return PackedFilter(self._layout, content.view(dtype).reshape(shape))

    def _elements(self, filter: PackedFilter | PackedFilters) -> np.ndarray:
        """Return the elements of a packed filter in this kernel's layout; raise InputError if it has another."""
        shape, dtype = self._packed
        filter = filter.of(self._layout)
        if filter.array.shape != shape or filter.array.dtype != dtype or not filter.array.flags.carray:
            raise InputError(
                f"the packed filter has shape {list(filter.array.shape)} and type {filter.array.dtype}, but its layout, "
                f"{filter.layout}, has shape {list(shape)} and type {dtype}: pack it again with this kernel's pack()"
            )
        return filter.array

    def __getstate__(self) -> dict[str, Any]:
        """Copies in other processes load the library."""
        return {**self.__dict__, "_functions": {}}

    def __repr__(self) -> str:
        return f"<tvmconv.Kernel {self.info.signature} ({self.info.algorithm}, {self.info.target})>"

    def _load(self, symbol: str, openmp: bool = False) -> Callable[..., object]:
        """Load a function of the library. Concurrent threads may load it twice, which is harmless."""
        if self._before is not None:
            self._before(self._bundle, self.info)
            self._before = None
        threads = self._threads or (kernel_threads() if openmp else None)
        if threads is None:
            function = load_function(self._bundle, self.info, symbol)
        else:
            twin = symbol + (_WITH_OPENMP if openmp else _WITH_THREADS)
            function = partial(load_function(self._bundle, self.info, twin), threads)
        self._functions[symbol, openmp] = function
        return function
