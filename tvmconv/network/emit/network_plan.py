"""`NetworkPlan`: the steps of a network, and the arrays that they read and write."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import tvm

from ..ir.free import Dims, product

COPY = "tvmconv_copy"
# Name of a step that passes over others: it calls none of the module's functions.
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
    """Bytes that one step writes, or one in each branch of an If, or nobody.

    Attributes
    ----------
    region, number, offset
        Where they are: the number of an input or output, or the offset in the weights, the arena, or what is prepared.
    size
        How many they are; where extents are free an expression of these.
    array
        Of weights.
    """

    region: Region
    size: Any
    number: int = 0
    offset: int = 0
    array: Any = None


@dataclass(frozen=True)
class Array:
    """A value: a storage, seen as an array; or one number, by which a function knows extents that are free."""

    storage: Storage
    shape: Dims
    dtype: str

    @property
    def size(self) -> Any:
        """Number of its bytes."""
        return bytes_of(self.shape, self.dtype)


@dataclass(frozen=True)
class PlanStep:
    """A call of a function of the module with these arrays, the last of which it writes.

    Attributes
    ----------
    free
        Where bytes of the arena begin that nothing needs meanwhile, for its workspace, and how many they are.
    following
        Of a later step's weights, what it prefetches (`prefetch_filters.py`).
    passed
        Of `IF`, how many steps after it are passed over where its argument is false, or always if it has none.
    beside
        How many steps after it, up to the end of its group, need nothing of each other, nor of it (`beside.py`).
    nodes
        Nodes of the model that it computes, as far as they are known.
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
        """The function that is called: one that prefetches has another name."""
        return self.function if self.following is None else f"{self.function}_next"

    @property
    def given(self) -> tuple[Array, ...]:
        """Arguments that the function is called with."""
        return self.arguments if self.following is None else (*self.arguments[:-1], self.following, self.arguments[-1])


@dataclass
class NetworkPlan:
    """A network's steps, inputs and outputs.

    Attributes
    ----------
    steps
        In order.
    prepared, prepared_bytes
        How many of the steps, the first ones, are of weights alone: they run when the network is loaded, and what they write is kept.
    inputs, outputs
        Their arrays.
    weights
        The storages in the file, each with its offset.
    arena_bytes
        How much memory a call needs, where no extent is free.
    slots
        Where extents are free, each arena storage's slot: storages of a slot share its bytes.
    workspace_bytes
        Where extents are free, what a step allocates at most.
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
    """Return how many bytes an element has."""
    return (_BITS.get(dtype) or int(tvm.DataType(dtype).bits)) // 8
