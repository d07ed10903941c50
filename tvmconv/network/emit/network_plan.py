"""`NetworkPlan`: a network's steps, and the arrays that they read and write."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import tvm

from ..ir.free import Dims, product

COPY = "tvmconv_copy"
# Name of a step that skips others, and calls no function of the module.
IF = "tvmconv_if"
OWN = {COPY, IF}
_BITS = {"bool": 8}


class Region(IntEnum):
    """Region of an array, as `native/executor.h` numbers them."""

    INPUT = 0
    OUTPUT = 1
    WEIGHTS = 2
    ARENA = 3
    NUMBER = 4
    PREPARED = 5


# Regions that no call changes.
KEPT = (Region.WEIGHTS, Region.PREPARED)


@dataclass(eq=False)
class Storage:
    """Bytes that one step writes, or one in each branch of an If; or an input or weights.

    Attributes
    ----------
    region, number, offset
        Place: the number of an input or output, or the offset in the weights, the arena, or the prepared memory.
    size
        Number of bytes; an expression where extents are free.
    array
        The weights' numbers.
    """

    region: Region
    size: Any
    number: int = 0
    offset: int = 0
    array: Any = None


@dataclass(frozen=True)
class Array:
    """A value: a storage seen as an array; or a number that a function takes, computed from free extents."""

    storage: Storage
    shape: Dims
    dtype: str

    @property
    def size(self) -> Any:
        """Number of its bytes."""
        return bytes_of(self.shape, self.dtype)


@dataclass(frozen=True)
class PlanStep:
    """A call of a function of the module with arrays, the last of which it writes.

    Attributes
    ----------
    free
        Offset and size of a gap of the arena that is unused during the step, for its workspace.
    following
        The part of a later step's weights that it prefetches (`prefetch_filters.py`).
    passed
        Of `IF`: how many steps are skipped where its argument is false, or always if it has no argument.
    beside
        Of the first step of a group: how many steps of the group follow (`beside.py`).
    nodes
        Nodes of the model that it computes, as far as known.
    """

    function: str
    arguments: tuple[Array, ...]
    free: tuple[int, int] = (0, 0)
    following: Array | None = None
    passed: int = 0
    beside: int = 0
    nodes: tuple[str, ...] = ()

    @property
    def symbol(self) -> str:
        """Name of the called function: a prefetching one has another name."""
        return self.function if self.following is None else f"{self.function}_next"

    @property
    def given(self) -> tuple[Array, ...]:
        """Arguments of the call, with the prefetched lines before the last."""
        return self.arguments if self.following is None else (*self.arguments[:-1], self.following, self.arguments[-1])


@dataclass
class NetworkPlan:
    """A network's steps, inputs and outputs.

    Attributes
    ----------
    steps
        Steps in order.
    prepared, prepared_bytes
        How many of the first steps depend on weights alone, and run once, when the network is loaded; the bytes of their results.
    inputs, outputs
        Their arrays.
    weights
        The storages in the file, each with its offset.
    arena_bytes
        Memory of a call, where no extent is free.
    slots
        Where extents are free: each arena storage's slot, whose bytes are shared.
    workspace_bytes
        Where extents are free: the largest workspace of a step.
    """

    steps: list[PlanStep] = field(default_factory=list)
    prepared: int = 0
    prepared_bytes: int = 0
    inputs: list[Array] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    weights: list[Storage] = field(default_factory=list)
    arena_bytes: int = 0
    slots: dict[Storage, int] = field(default_factory=dict)
    workspace_bytes: int = 0

    @property
    def is_free(self) -> bool:
        """Return whether extents are free."""
        arrays = (*self.inputs, *self.outputs, *(each for step in self.steps for each in step.arguments))
        return not all(map(is_fixed, arrays))


def is_fixed(array: Array) -> bool:
    """Return whether no extent is free."""
    return all(isinstance(size, int) for size in array.shape)


def bytes_of(shape: Dims, dtype: str) -> Any:
    """Return an array's bytes; an expression where extents are free."""
    return product((*shape, item_bytes(dtype)))


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element."""
    return (_BITS.get(dtype) or int(tvm.DataType(dtype).bits)) // 8
