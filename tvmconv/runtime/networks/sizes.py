"""The functions of a network, and of the networks of named sizes in the library of a network of any size."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .extents import FreeExtents
from .library import NativeLibrary
from .tensors import tensors_of

# Key of named sizes in a library's description; the keys of each.
SIZES, OF_SIZES = "sizes", ("inputs", "outputs", "report", "steps", "arena_bytes", "peak_bytes")
# Suffixes of a network's functions.
ENDINGS = ("", "_open", "_close", "_limit", "_with_threads", "_with_openmp")
NAME = "tvmconv_network"
Shape = tuple[int, ...]


def of_size(number: int) -> str:
    """Return the prefix of a named size's functions."""
    return f"{NAME}_size{number}"


class Entries:
    """A network of a library: its functions, and facts of its description.

    Parameters
    ----------
    library, name
        The library, and the prefix of the network's functions in it.
    description
        The network's description.
    arena_limit
        As of `tvmconv.runtime.networks.network.Network`.

    Raises
    ------
    AttributeError
        If the library lacks these functions.
    """

    def __init__(
        self, library: NativeLibrary, name: str, description: Mapping[str, Any], arena_limit: int | None = None
    ) -> None:
        self.run = library[name]
        self.run_with = {which: library[f"{name}_with_{which}"] for which in ("threads", "openmp")}
        self.handle = library[f"{name}_open"]()
        if arena_limit:
            library[f"{name}_limit"](self.handle, arena_limit)
        self.steps, self.arena_bytes = description["steps"], int(description["arena_bytes"])
        self.signatures = {row["function"]: row["signature"] for row in description["report"] if row["function"]}
        self.outputs = [each.shape for each in tensors_of(description, "outputs")]
        # Not at exit, when threads may still be calling it.
        weakref.finalize(self, library[f"{name}_close"], self.handle).atexit = False


def named_sizes(
    library: NativeLibrary, description: Mapping[str, Any], free: FreeExtents, arena_limit: int | None
) -> Iterator[tuple[Shape, Entries]]:
    """Yield the networks of named sizes, each with its extents."""
    listed: Sequence[Mapping[str, Any]] = description.get(SIZES, ())
    for number, each in enumerate(listed):
        extents = free.of([tensor.shape for tensor in tensors_of(each, "inputs")])
        yield extents, Entries(library, of_size(number), each, arena_limit)
