"""A network for inclusion in another library: one object, and the sections appended to the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NATIVE = Path(__file__).parent / "network"
# Prefix of the object's functions: open, close, measure and call a network with some threads; on x86, ask for AMX's tiles.
PREFIX = "__tvm_ffi_tvmconv_network"
ENTRIES = (*(f"{PREFIX}_{name}" for name in ("open", "close", "measure", "with_threads")), "tvmconv_allow_tiles")
# Headers that it lacks: loops, which the host has, and errors.
PARALLEL = NATIVE.parents[1] / "lowering" / "native" / "parallel.h"
LACKING = ("raised.c", "without_openmp.c")
SHARED = (*(NATIVE / each for each in (*LACKING, "tvmconv-raised.h", "tvmconv-extents.h")), PARALLEL)


@dataclass(frozen=True)
class NetworkPart:
    """A compiled network.

    Attributes
    ----------
    object
        A relocatable object, which defines `ENTRIES`, and lacks threads and errors: `tvmconv_parallel_for`,
        `tvmconv_parallel_for_openmp`, `tvmconv_by_team` and `tvmconv_threads` of ``parallel.h``, and tvm-ffi's functions of
        raised errors. On a platform without such parts (`Platform.has_parts`), a library that lacks nothing.
    weights
        Arrays, each with its offset: appended to the library's file (`tvmconv.runtime.networks.file.append`), or the array
        ``tvmconv_network_weights`` in the program.
    description
        What a network's library says of itself, with ``"inputs"`` and ``"outputs"``.
    identity
        What the end of the library's file has, too.
    threaded
        The same library with threads, where the platform has both (`Platform.threaded`).
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
