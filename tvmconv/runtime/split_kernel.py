"""Kernels that compute a batch by calls of kernels for other batches, on slices of the arrays.

Batch is the first axis of data, residual and output in both layouts, so the slices of C-contiguous arrays are C-contiguous,
and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..problem import Problem
from ..signature import format_signature
from .bundle import EMULATED, NUMERICAL_CLASSES, Entry
from .cuda.arrays import Library
from .cuda.kernel import CudaKernel
from .cuda.slice import Slice
from .kernel import Kernel
from .packed import PACKED, PackedFilter, PackedFilters
from .split import Split

_Kernel = TypeVar("_Kernel", Kernel, CudaKernel)
# Arrays whose first axis is the batch.
_OF_IMAGES = ("data", "residual", "output")


class SplitKernel(Kernel):
    """A convolution of a batch, by calls of kernels for other batches. Made by :class:`tvmconv.Registry`.

    It takes and returns what a :class:`tvmconv.Kernel` does. A call takes as long as its parts together; each packs
    the filter unless that is prepacked.

    Parameters
    ----------
    problem
        The convolution it computes.
    split
        The batches of the calls.
    kernels
        The kernels of these batches; at least one, even if there are no calls.

    Attributes
    ----------
    info : Entry
        The first kernel's entry, with the signature of the whole problem, and target, algorithm, class, packed filter,
        workspace and verification of all kernels together.
    split : Split
        As given; its text is like ``8 + 8 + 1``.
    kernels : tuple of Kernel
        As given.
    """

    def __init__(self, problem: Problem, split: Split, kernels: Sequence[Kernel]) -> None:
        super().__init__(kernels[0]._bundle, _info(problem, kernels))
        self.split, self.kernels = split, tuple(kernels)
        self._with_images = [place for place, name in enumerate(self.problem.operands) if name in _OF_IMAGES]

    @property
    def filter_layout(self) -> str:
        """Names of its packed filters' layouts."""
        return " and ".join(dict.fromkeys(kernel.filter_layout for kernel in self.kernels))

    def pack(self, filter: Any) -> PackedFilter | PackedFilters:
        """Return the filter packed in each layout of the kernels.

        Parameters and errors are those of :meth:`tvmconv.Kernel.pack`.
        """
        if isinstance(filter, PACKED):
            self._elements(filter)
            return filter
        made: dict[str, PackedFilter] = {}
        for kernel in self.kernels:
            if kernel.filter_layout not in made:
                made[kernel.filter_layout] = kernel.pack(filter).of(kernel.filter_layout)
        return PackedFilters(made) if len(made) > 1 else next(iter(made.values()))

    def __repr__(self) -> str:
        return f"<tvmconv.SplitKernel {self.info.signature} ({self.split})>"

    def _elements(self, filter: PackedFilter | PackedFilters) -> np.ndarray:
        first, *_ = [kernel._elements(filter) for kernel in self.kernels]
        return first

    def _run(
        self,
        inputs: Sequence[np.ndarray],
        output: np.ndarray,
        packed: PackedFilter | PackedFilters | None,
        openmp: bool = False,
    ) -> None:
        filters = None if packed is None else {kernel: kernel._elements(packed) for kernel in self.kernels}
        for kernel, images in _slices(self.split, self.kernels):
            taken = list(inputs)
            for place in self._with_images:
                taken[place] = inputs[place][images]
            if filters is not None:
                taken[1] = filters[kernel]
            kernel._run(taken, output[images], packed, openmp)


class CudaSplitKernel(CudaKernel):
    """A convolution of a batch on a GPU, by calls of kernels for other batches, one after the other on one stream.

    Parameters and attributes are those of :class:`SplitKernel`.
    """

    def __init__(self, problem: Problem, split: Split, kernels: Sequence[CudaKernel]) -> None:
        super().__init__(kernels[0]._bundle, _info(problem, kernels))
        self.split, self.kernels = split, tuple(kernels)
        self._with_images = [
            place for place, name in enumerate([*self.problem.operands, "output"]) if name in _OF_IMAGES
        ]

    def __repr__(self) -> str:
        return f"<tvmconv.CudaSplitKernel {self.info.signature} ({self.split})>"

    def _launch(self, library: Library, gpu: int, stream: int, like: Any, arguments: tuple[Any, ...]) -> None:
        import tvm_ffi

        for kernel, images in _slices(self.split, self.kernels):
            slices = []  # as long as the call
            taken = list(arguments)
            for place in self._with_images:
                if isinstance(taken[place], tvm_ffi.Tensor):
                    slices.append(Slice(taken[place], images, self._dtype, gpu))
                    taken[place] = tvm_ffi.from_dlpack(slices[-1])
                else:
                    taken[place] = taken[place][images]
            kernel._launch(library, gpu, stream, like, tuple(taken))


def _slices(split: Split, kernels: Sequence[_Kernel]) -> Iterator[tuple[_Kernel, slice]]:
    """Yield the kernel and the images of each call."""
    by_batch = {kernel.problem.batch: kernel for kernel in kernels}
    begin = 0
    for part in split.parts:
        for _ in range(part.calls):
            yield by_batch[part.batch], slice(begin, begin + part.batch)
            begin += part.batch


def _info(problem: Problem, kernels: Sequence[Kernel] | Sequence[CudaKernel]) -> Entry:
    """Return the common entry of all kernels."""
    infos = [kernel.info for kernel in kernels]
    packed = {each["layout"]: each for info in infos if (each := info.packed_filter) is not None}
    described = None
    if packed:
        total = sum(each["bytes"] for each in packed.values())
        described = {**next(iter(packed.values())), "layout": " and ".join(packed), "bytes": total}
    return replace(
        infos[0],
        signature=format_signature(problem),
        target=_join_names([info.target for info in infos]),
        algorithm=_join_names([info.algorithm for info in infos]),
        numerical_class=max((info.numerical_class for info in infos), key=NUMERICAL_CLASSES.index),
        packed_filter=described,
        workspace_bytes=max(info.workspace_bytes for info in infos),
        measured=None,
        error=None,
        verified=_least_verified([info.verified for info in infos]),
        skipped=(),
    )


def _least_verified(verified: Sequence[bool | str | None]) -> bool | str | None:
    return next((least for least in (None, EMULATED) if least in verified), True)


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(names))
