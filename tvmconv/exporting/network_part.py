"""A network that another library takes in: one object, and what goes behind the library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# What the object defines: to open a network, to close it, to call it with a number of threads.
ENTRIES = tuple(f"__tvm_ffi_tvmconv_network_{name}" for name in ("open", "close", "with_threads"))


@dataclass(frozen=True)
class NetworkPart:
    """A compiled network.

    Attributes
    ----------
    object
        A relocatable object, which defines `ENTRIES`, and lacks threads and errors: `tvmconv_parallel_for`,
        `tvmconv_parallel_for_openmp` and `tvmconv_threads` of ``parallel.h``, and tvm-ffi's functions of raised errors.
    weights
        What is appended to the library (`tvmconv.runtime.network_file.append`): arrays, each with its offset.
    description
        What a network's library says of itself, with ``"inputs"`` and ``"outputs"``.
    identity
        What the end of the library's file has, too.
    """

    object: bytes
    weights: tuple[tuple[int, np.ndarray], ...]
    description: Mapping[str, Any]
    identity: str
