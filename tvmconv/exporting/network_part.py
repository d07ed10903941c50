"""A compiled network as an object to be linked into another library, with its weights and its description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NATIVE = Path(__file__).parent / "network"
# Prefix of the object's functions: open, close, measure a network, and call it with a number of threads; on x86, permission for AMX's tiles.
PREFIX = "__tvm_ffi_tvmconv_network"
ENTRIES = (*(f"{PREFIX}_{name}" for name in ("open", "close", "measure", "with_threads")), "tvmconv_allow_tiles")
# Declarations of the loops that the object lacks; C files that define the errors and OpenMP's loops; all of these with headers.
PARALLEL = NATIVE.parents[1] / "lowering" / "native" / "parallel.h"
LACKING = ("raised.c", "no_openmp.c")
SHARED = (
    *(NATIVE / each for each in ("raised.c", "tvmconv-raised.h", "tvmconv-extents.h")),
    PARALLEL.with_name("no_openmp.c"),
    PARALLEL,
)


@dataclass(frozen=True)
class NetworkPart:
    """A compiled network.

    Attributes
    ----------
    object
        A relocatable object that defines `ENTRIES`. Threads and errors are undefined in it: `tvmconv_parallel_for`,
        `tvmconv_parallel_for_openmp`, `tvmconv_by_team` and `tvmconv_threads` of ``parallel.h``, and tvm-ffi's functions of
        raised errors. On a platform without such objects (`Platform.has_parts`), a complete library.
    weights
        Arrays with their offsets, to be appended to the library's file (`tvmconv.runtime.networks.file.append`), or linked as the
        array ``tvmconv_network_weights``.
    description
        The description at the end of a network's library, with ``"inputs"`` and ``"outputs"``.
    identity
        The identity at the end of the library's file.
    threaded
        The same network linked with threads, where the platform has both (`Platform.threaded`).
    """

    object: bytes
    weights: tuple[tuple[int, np.ndarray], ...]
    description: Mapping[str, Any]
    identity: str
    threaded: bytes | None = None

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights, with the gaps between them."""
        return max((offset + array.nbytes for offset, array in self.weights), default=0)

    def write_weights(self, path: Path) -> None:
        """Write the weights at their offsets."""
        with path.open("wb") as file:
            for offset, array in self.weights:
                file.seek(offset)
                file.write(array.tobytes())
