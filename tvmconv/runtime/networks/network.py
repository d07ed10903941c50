"""`Network`: a compiled network, called with arrays, timed step by step. It needs tvm-ffi, but no compiler."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy import ndarray

from ...errors import BundleError, InputError, OutOfRangeError, UnsupportedMachineError
from ...isa.machine import obstacle_of
from ..arrays import address, aligned_empty
from ..processors import kernel_threads
from .extents import FreeExtents, check_shapes
from .file import library_path, read_file
from .library import NativeLibrary
from .sizes import NAME, SIZES, Entries, named_sizes
from .tensors import Array, Tensor, check_arrays, put_in_range, random_arrays, tensors_of

# Minimum number of timed calls.
_LEAST_CALLS = 5

# Size of the cache of output shapes by extents.
_KNOWN = 64
# Bytes up to which copying an output from the arena takes less time than allocating an aligned array.
_COPIED = 4096


@dataclass(frozen=True)
class Operator:
    """Time of one operator of a network.

    Attributes
    ----------
    name
        The signature of a kernel, or the name of another function.
    ours
        Whether it is a tvmconv kernel.
    calls
        Number of calls in the network.
    seconds
        Sum of the least times of these calls.
    bytes
        Bytes that these calls read and write, each array once.
    nodes
        Nodes of the model that it computes, if known.
    """

    name: str
    ours: bool
    calls: int
    seconds: float
    bytes: int
    nodes: tuple[str, ...] = ()


class Network:
    """A compiled network, called with an array for each input.

    Parameters
    ----------
    path
        The library.
    arena_limit
        Maximum bytes of the arena kept between calls where extents are free; a larger arena is freed after each call. None: the
        largest call's arena is kept.

    Attributes
    ----------
    inputs, outputs
        Inputs and outputs; free extents in their shapes are names, or expressions of names.
    extents
        The free extents with their ranges; empty: all are fixed.
    description
        The library's description: versions, target, steps, and the kernel of each convolution.

    Raises
    ------
    BundleError
        If it is no library of a network, or truncated.
    UnsupportedMachineError
        If this machine lacks a CPU feature that its code uses.
    """

    def __init__(self, path: str | os.PathLike[str], arena_limit: int | None = None) -> None:
        path = library_path(path)
        self.file = read_file(path)
        self.description = self.file.description
        if why := obstacle_of(self.description["features"]):
            raise UnsupportedMachineError(f"{path} is for {self.description['target']}; {why}")
        self.inputs, self.outputs = (tensors_of(self.description, which) for which in ("inputs", "outputs"))
        self._free = FreeExtents(self.description, self.inputs)
        self.extents = self._free.extents
        self._known: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        self._arena_limit = arena_limit
        limit = arena_limit if self.extents else None
        try:
            self._library = library = NativeLibrary(path)
            self._own = Entries(library, NAME, self.description, limit)
            self._named = dict(named_sizes(library, self.description, self._free, limit))
        except (OSError, RuntimeError, AttributeError) as error:
            raise BundleError(f"{path} cannot be loaded: {str(error).strip()}") from None

    def __reduce__(self) -> tuple[type[Network], tuple[str, int | None]]:
        """Let copies in other processes load the file."""
        return type(self), (str(self.file.path), self._arena_limit)

    def __copy__(self) -> Network:
        """Return the network itself, which is immutable."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Network:
        """Return the network itself, which is immutable."""
        return self

    def __call__(self, *unnamed: Any, **arrays: Any) -> dict[str, Array]:
        """Return the outputs by name.

        Parameters
        ----------
        **arrays
            The inputs by name, in their shapes and types: NumPy arrays, torch CPU tensors, or arrays with ``__dlpack__``.

        Raises
        ------
        InputError
            If an input is missing, superfluous, unnamed, of another shape or type, or no supported array.
        """
        if unnamed:
            names = ", ".join(f"{each.name}=..." for each in self.inputs)
            raise InputError(f"inputs are given by name: network({names})")
        given = self._given(arrays)
        entries, extents, made = self._made(given)
        entries.run(entries.handle, 0, *extents, *map(address, given), *map(address, made))
        return dict(zip(self._output_names, made))  # noqa: B905 - as many: it would take as long again to look

    def run(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        threads: int = 0,
        openmp: bool = False,
        extents: Sequence[int] = (),
    ) -> None:
        """Compute from and to the addresses of C-contiguous arrays with the shapes and types of :attr:`inputs` and :attr:`outputs`.

        Parameters
        ----------
        inputs, outputs
            The addresses; arrays that begin at a cache line (64 bytes) are read and written in place, others are copied.
        threads
            Number of threads; 0: the default of kernels.
        openmp
            Whether to use the threads of GNU OpenMP, as PyTorch does.
        extents
            The values of :attr:`extents`, each divided by its multiple.
        """
        entries, extents = self._entries(tuple(extents))
        if openmp or threads:
            run = entries.run_with["openmp" if openmp else "threads"]
            run(threads or kernel_threads(), entries.handle, 0, *extents, *inputs, *outputs)
        else:
            entries.run(entries.handle, 0, *extents, *inputs, *outputs)

    def random_inputs(self, batch: int = 1, shapes: Mapping[str, Sequence[int]] | None = None) -> dict[str, Array]:
        """Return inputs for trials, the same in every call: normal numbers, and ones for integers, or zeros where a one is out of range.

        Parameters
        ----------
        batch
            Size of free batches; other free extents are about 64.
        shapes
            Shapes of inputs by name, which determine their free extents.
        """
        return self._random_arrays(self._free.near(batch=batch, given=shapes))

    def examples(self) -> list[dict[str, Array]]:
        """Return random inputs of a typical size, and of each named size."""
        named = [tensors_of(each, "inputs") for each in self.description.get(SIZES, ())]
        return [self.random_inputs(batch=2), *map(self._random_arrays, named)]

    def _random_arrays(self, tensors: Sequence[Tensor]) -> dict[str, Array]:
        """Return random arrays; integers are ones unless the network refuses them as indices, such as of a table of one row."""
        return put_in_range(random_arrays(tensors), lambda arrays: self(**arrays), OutOfRangeError)

    def call(self, arrays: Mapping[str, Any]) -> Any:
        """Return a function without arguments that computes the outputs of some inputs, for timing."""
        given = self._given(arrays)
        entries, extents, made = self._made(given)
        addresses = [*extents, *map(address, given), *map(address, made)]

        def compute() -> list[Array]:
            entries.run(entries.handle, 0, *addresses)
            return made

        compute.given = given  # type: ignore[attr-defined]  # keeps the arrays alive
        return compute

    def _given(self, arrays: Mapping[str, Any]) -> list[Array]:
        """Return the inputs in order, C-contiguous; NumPy arrays of fixed shapes take a fast path."""
        found: list[Array] = []
        if len(arrays) == len(self._usual) and not self.extents:
            for name, shape, dtype in self._usual:
                value: Any = arrays.get(name)
                usual = type(value) is ndarray and value.dtype == dtype and value.shape == shape
                if not usual or not value.flags.c_contiguous:
                    return check_arrays(arrays, self.inputs)
                found.append(value)
            return found
        return check_arrays(arrays, self.inputs)

    @cached_property
    def _usual(self) -> list[tuple[str, tuple[int, ...], np.dtype[Any]]]:
        return [(each.name, each.shape, each.numpy) for each in self.inputs]

    def _entries(self, extents: tuple[int, ...]) -> tuple[Entries, tuple[int, ...]]:
        """Return the network for some extents, that of a named size if there is one, and its arguments for extents."""
        named = self._named.get(extents) if self._named else None
        return (self._own, extents) if named is None else (named, ())

    def _made(self, given: Sequence[Array]) -> tuple[Entries, tuple[int, ...], list[Array]]:
        """Return the network to call, its arguments for extents, and new arrays for the outputs."""
        if not self.extents:
            return self._own, (), [make(shape, dtype) for make, shape, dtype in self._makers]
        extents, shapes = self.sizes([each.shape for each in given])
        made = [aligned_empty(shape, each.numpy) for shape, each in zip(shapes, self.outputs, strict=True)]
        return *self._entries(extents), made

    def sizes(self, shapes: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        """Return the extents of inputs of some shapes, for :meth:`run`, and the shapes of the outputs.

        Raises
        ------
        InputError
            If the network does not take these shapes.
        """
        extents = self._free.of(shapes)
        if extents in self._named:
            return extents, self._named[extents].outputs
        made = self._known.get(extents)
        if made is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            made = self._known[extents] = self._plan(extents)[1]
        return extents, made

    def _plan(self, extents: tuple[int, ...]) -> tuple[int, list[tuple[int, ...]]]:
        """Let the library plan a call; return the arena's bytes, and the shapes of the outputs."""
        ranks = [len(each.shape) for each in self.outputs]
        numbers = np.zeros(max(sum(ranks), 1), np.int64)
        try:
            size = self._library[f"{NAME}_measure"](self._own.handle, 1, *extents, numbers.ctypes.data, sum(ranks))
        except ValueError as error:
            sizes = (f"{each.name} of {size * each.multiple}" for each, size in zip(self.extents, extents, strict=True))
            raise InputError(f"the network does not take {', '.join(sizes)}: {error}; give other extents") from None
        rest = iter(numbers.tolist())
        return size, [tuple(next(rest) for _ in range(rank)) for rank in ranks]

    def prepare(self, **shapes: Sequence[int]) -> int:
        """Plan a call with inputs of these shapes, and allocate its arena; return the arena's bytes.

        A call with new extents does the same, in some microseconds; the last eight plans are kept.

        Parameters
        ----------
        **shapes
            The inputs' shapes by name.

        Raises
        ------
        InputError
            If the network does not take these shapes.
        """
        if not self.extents:
            return int(self.description["arena_bytes"])
        extents = self._free.of(check_shapes(shapes, self.inputs))
        return self._named[extents].arena_bytes if extents in self._named else self._plan(extents)[0]

    @cached_property
    def _makers(self) -> list[tuple[Any, tuple[int, ...], np.dtype[Any]]]:
        kinds = [(each.shape, each.numpy) for each in self.outputs]
        return [
            (np.empty if prod(shape) * dtype.itemsize <= _COPIED else aligned_empty, shape, dtype)
            for shape, dtype in kinds
        ]

    @cached_property
    def _output_names(self) -> list[str]:
        return [each.name for each in self.outputs]

    def operators(self, arrays: Mapping[str, Any], seconds: float) -> list[Operator]:
        """Time the operators for about `seconds` in all; return them, the longest first."""
        steps = self.steps(arrays, seconds)
        found = []
        for name in dict.fromkeys(each.name for each in steps):
            same = [each for each in steps if each.name == name]
            taken, moved = sum(each.seconds for each in same), sum(each.bytes for each in same)
            nodes = tuple(dict.fromkeys(node for each in same for node in each.nodes))
            found.append(Operator(name, same[0].ours, len(same), taken, moved, nodes))
        return sorted(found, key=lambda each: -each.seconds)

    def steps(self, arrays: Mapping[str, Any], seconds: float) -> list[Operator]:
        """Time the steps for about `seconds` in all; return them in order, each as one call."""
        given = self._given(arrays)
        entries, extents, made = self._made(given)
        addresses = [*extents, *map(address, given), *map(address, made)]
        times = np.zeros(max(len(entries.steps), 1))
        least = np.full_like(times, np.inf)
        calls, end = 0, time.perf_counter() + seconds
        while calls < _LEAST_CALLS or time.perf_counter() < end:
            entries.run(entries.handle, times.ctypes.data, *addresses)
            np.minimum(least, times, out=least)
            calls += 1
        ran = [(step, float(each)) for step, each in zip(entries.steps, least, strict=False) if each >= 0]
        return [
            Operator(
                entries.signatures.get(name := step["function"], name),
                name in entries.signatures,
                1,
                each,
                step["bytes"],
                tuple(step.get("nodes", ())),
            )
            for step, each in ran
        ]


def load_network(path: str | os.PathLike[str], arena_limit: int | None = None) -> Network:
    """Return the network in a library; parameters and errors are those of :class:`Network`."""
    return Network(path, arena_limit)
