"""Place a kernel's arrays in memory, which changes its speed.

Two arrays whose addresses are equal modulo a page (4096 bytes) are taken for each other by the check of loads
against earlier stores; a vector of 64 bytes that does not start at a multiple of 64 reads two cache lines; and large
arrays on pages of 2 MiB miss fewer translations. Callers' arrays may be anywhere, so schedules are compared in several
placements.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runtime.arrays import array_in

PAGE_BYTES = 4096


@dataclass(frozen=True)
class Placement:
    """Placement of arrays in memory.

    Attributes
    ----------
    offsets
        Bytes past the beginning of a page, of each array in turn; multiples of 16, which malloc keeps.
    huge
        Whether the system is asked for pages of 2 MiB, or to use none.
    """

    offsets: tuple[int, ...]
    huge: bool

    def copy(self, arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Return copies of the arrays in this placement, in fresh memory, with the bits of bfloat16 as uint16."""
        return [
            _place(array, self.offsets[number % len(self.offsets)], self.huge) for number, array in enumerate(arrays)
        ]


# Large arrays of NumPy begin 16 bytes past a page, those of torch 64: what malloc and posix_memalign put before them.
# The others are a quarter of a page apart, or at odd distances, on cache lines and off them.
PLACEMENTS = (
    Placement((64,), huge=False),
    Placement((16,), huge=False),
    Placement((0,), huge=True),
    Placement((0, 1024, 2048, 3072), huge=False),
    Placement((16, 3088, 2064, 1040), huge=True),
    Placement((32, 1632, 544, 2720), huge=False),
    Placement((3136, 192, 1408, 832), huge=True),
    Placement((48, 2096, 3632, 560), huge=False),
)


def _place(array: npt.NDArray[Any], offset: int, huge: bool) -> npt.NDArray[Any]:
    bits = array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    # Private: shared anonymous memory is a file's to the system, which has no huge pages by default.
    memory = mmap.mmap(-1, bits.nbytes + PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    copy = array_in(memory, bits.shape, bits.dtype, offset)
    copy[...] = bits
    return copy
