"""CUDA C++ of a kernel, and the launches that run it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from operator import mul

WORKSPACE = "workspace"
# Pieces of the workspace begin at multiples of this, which is what cudaMalloc aligns to: any vector load may be used.
WORKSPACE_ALIGNMENT = 256


@dataclass(frozen=True)
class Argument:
    """A pointer that a device function takes: an operand of the problem, ``output``, or ``workspace`` plus bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class TensorMap:
    """Map by which a device function copies boxes of an array, swizzled (CUDA Driver API, cuTensorMapEncodeTiled).

    Attributes
    ----------
    name
        Name of the array, as in `Argument`.
    extents
        Extents of the array, that of the contiguous axis first, as in all of these.
    box
        Elements that a box spans along each axis: along the first, rows of 32, 64 or 128 bytes.
    steps
        Strides within the box: one of so many elements is copied.
    distances
        Elements from one index to the next along each axis but the first; rows may overlap. Empty: the array is
        densely packed.
    offset
        Bytes before the first element.
    """

    name: str
    extents: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    distances: tuple[int, ...] = ()
    offset: int = 0

    @property
    def element_distances(self) -> tuple[int, ...]:
        """The distances, also where the array is densely packed."""
        return self.distances or tuple(accumulate(self.extents[:-1], mul))


@dataclass(frozen=True)
class Launch:
    """One launch of a device function.

    Attributes
    ----------
    function
        Its name in the source.
    grid, block
        Blocks and threads along x, y and z.
    shared_bytes
        Dynamic shared memory of a block.
    arguments
        Its parameters, in order; one may be several maps.
    """

    function: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[Argument | TensorMap | tuple[TensorMap, ...], ...]


@dataclass(frozen=True)
class CudaSource:
    """CUDA C++ of one kernel, its launches in order, and the bytes of device memory that they share."""

    source: str
    launches: tuple[Launch, ...]
    workspace_bytes: int
