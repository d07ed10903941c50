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

# The launcher that is linked into each library has these twins of each function, which take the number of threads first: those
# of the kernels' pool, or OpenMP's, which are PyTorch's, where a process has it.
_OTHERS = ("bias", "scale", "slope", "residual")  # that a call may have besides data and filter
_WITH_THREADS, _WITH_OPENMP = "_with_threads", "_with_openmp"


class Kernel:
    """A compiled convolution of fixed shapes, types and attributes.

    Its library is checked and loaded at the first call. Calls are safe from several threads and after
    ``fork``.

    Parameters
    ----------
    bundle, entry
        The bundle and which of its kernels.
    threads
        Number of threads of a call; None: as many as there are processors for, or ``OMP_NUM_THREADS``, if it is less.
    before
        Called with the kernel's bundle and entry before its library is first used; what it raises, the call raises.
    problem
        What the entry's signature says, where it is known.

    Attributes
    ----------
    info : Entry
        What the bundle says of this kernel.
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
            `filter` may also be what :meth:`pack` returned, which saves the time that ``info.packed_filter`` costs.
        scale, slope, residual
            Operands of the epilogue: f32 factors of each channel, for ``scale`` and for ``prelu``, and the summand of ``add``.
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
        VerificationError
            If the bundle was loaded with ``verify="first-use"`` and the kernel is wrong.
        """
        types, shapes = self._types, self._shapes
        packed = None
        if isinstance(filter, PACKED):
            inputs = [kernel_input("data", data, types.data, shapes[0]), self._elements(filter)]
            packed, filter = filter, None  # nobody else has its memory
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
        """Compute with arrays that were checked, by OpenMP's threads or the pool's.

        `packed` is where the filter among them comes from, if it is packed.
        """
        symbol = self.info.symbol if packed is None else self._packed_symbol
        (self._functions.get((symbol, openmp)) or self._load(symbol, openmp))(*inputs, output)

    def pack(self, filter: Any) -> PackedFilter | PackedFilters:
        """Return the filter packed for this kernel, to pass to many calls in place of the plain one.

        Where ``info.packed_filter`` is not None, a call with a plain filter packs it each time; this does it once. It is a copy in any case.

        Parameters
        ----------
        filter
            As in a call; one that is packed is returned as it is.

        Returns
        -------
        PackedFilter or PackedFilters
            The latter where the kernel calls others that want several layouts.

        Raises
        ------
        InputError
            If the filter is not what the kernel takes.
        BundleError
            If the library is missing, altered, or cannot be loaded.
        """
        if isinstance(filter, PACKED):
            self._elements(filter)
            return filter
        array = kernel_input("filter", filter, self._types.filter, self._shapes[1])
        if self.info.packed_filter is None:
            return PackedFilter(self._layout, aligned_copy(array))
        packed = zeros(*self._packed)  # where no element comes, too: equal filters give equal bytes
        (self._functions.get((PACK_SYMBOL, False)) or self._load(PACK_SYMBOL))(array, packed)
        return PackedFilter(self._layout, packed)

    @property
    def filter_layout(self) -> str:
        """Name of the layout of the packed filters that it takes."""
        return self._layout

    def packed_from(self, content: np.ndarray) -> PackedFilter:
        """Return the packed filter with the elements in `content`; it shares the bytes if they begin at a cache line.

        Raises
        ------
        InputError
            If they are not as many as a packed filter of this kernel has.
        """
        shape, dtype = self._packed
        if content.nbytes != dtype.itemsize * prod(shape):
            raise InputError(
                f"the packed filter has {content.nbytes} bytes; {self._layout} has {dtype.itemsize * prod(shape)}"
            )
        return PackedFilter(self._layout, content.view(dtype).reshape(shape))

    def _elements(self, filter: PackedFilter | PackedFilters) -> np.ndarray:
        """Return the elements of a packed filter, if they have this kernel's layout."""
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
        """Load a function of the library. Threads that come here together load it together, which does no harm."""
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
