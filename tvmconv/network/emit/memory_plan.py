"""`plan`: a function of Relax that is a straight line of calls, as steps over arrays that have their places.

A value of Relax is a storage, or a part of one: an input, weights, or what a step writes. What the network returns is
written where its caller wants it; all else lies in an arena, whose bytes are used again when nobody reads them any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from ...errors import SourceError
from ...runtime.networks.placing import Lifetime, largest_gap, place, whole_lines
from ..ir.constants import constant, content, static_shape

COPY = "tvmconv_copy"
_BITS = {"bool": 8}


class Region(IntEnum):
    """Where an array lies, as `native/executor.h` numbers them."""

    INPUT = 0
    OUTPUT = 1
    WEIGHTS = 2
    ARENA = 3


@dataclass(eq=False)
class Storage:
    """Bytes that one step writes, or nobody.

    Attributes
    ----------
    region, number, offset
        Where they are: the number of an input or output, or the offset in the weights or the arena.
    size
        How many they are.
    array
        Of weights.
    first, last
        The steps between which the arena's must stay.
    """

    region: Region
    size: int
    number: int = 0
    offset: int = 0
    array: Any = None
    first: int = 0
    last: int = 0


@dataclass(frozen=True)
class Array:
    """A value: a storage, seen as an array."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return prod(self.shape) * item_bytes(self.dtype)


@dataclass(frozen=True)
class Step:
    """A call of a function of the module with these arrays, the last of which it writes.

    Attributes
    ----------
    free
        Where bytes of the arena begin that nothing needs meanwhile, for its workspace, and how many they are.
    following
        Of a later step's weights, what it prefetches (`next_filters.py`).
    """

    function: str
    arguments: tuple[Array, ...]
    free: tuple[int, int] = (0, 0)
    following: Array | None = None

    @property
    def symbol(self) -> str:
        """The function that is called: one that prefetches has another name."""
        return self.function if self.following is None else f"{self.function}_next"

    @property
    def given(self) -> tuple[Array, ...]:
        """What the function is called with."""
        return self.arguments if self.following is None else (*self.arguments[:-1], self.following, self.arguments[-1])


@dataclass
class NetworkPlan:
    """A network's steps; what it takes and gives.

    Attributes
    ----------
    steps
        In order.
    inputs, outputs
        Their arrays.
    weights
        The storages in the file, each with its offset.
    arena_bytes
        How much memory a call needs.
    """

    steps: list[Step] = field(default_factory=list)
    inputs: list[Array] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    weights: list[Storage] = field(default_factory=list)
    arena_bytes: int = 0


def item_bytes(dtype: str) -> int:
    """Return how many bytes an element has."""
    return (_BITS.get(dtype) or int(tvm.DataType(dtype).bits)) // 8


def plan(function: relax.Function, workspaces: Mapping[str, int]) -> NetworkPlan:
    """Return the plan of a function whose calls are of functions of its module, with the bytes that some of these allocate.

    Raises
    ------
    SourceError
        If it does something else, such as deciding by its numbers; the error says what.
    """
    planner = _Planner(function)
    planner.walk()
    planner.place_outputs()
    planner.place_weights()
    planner.place_arena(workspaces)
    return planner.plan


class _Planner:
    def __init__(self, function: relax.Function) -> None:
        self._function = function
        self.plan = NetworkPlan()
        self._values: dict[Any, Any] = {}
        self._weights: dict[bytes, Storage] = {}
        for number, each in enumerate(function.params):
            shape, dtype = _fixed(each)
            made = Array(Storage(Region.INPUT, prod(shape) * item_bytes(dtype), number), 0, shape, dtype)
            self._values[each] = made
            self.plan.inputs.append(made)

    def walk(self) -> None:
        """Note what each binding computes."""
        for block in self._function.body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, relax.VarBinding):
                    raise SourceError(f"the network matches shapes while it runs ({binding.var.name}); give fixed ones")
                self._values[binding.var] = self._bound(binding.value)

    def _bound(self, value: Any) -> Any:
        if isinstance(value, relax.Tuple):
            return tuple(self._array(each) for each in value.fields)
        if isinstance(value, relax.TupleGetItem):
            return self._array(value.tuple_value)[value.index]
        if isinstance(value, relax.If):
            raise _undecided("an If")
        if not isinstance(value, relax.Call):
            return self._array(value)
        name = getattr(value.op, "name", "")
        if name in ("relax.reshape", "relax.memory.view"):
            return self._view(value)
        if name == "relax.call_tir":
            return self._call(value)
        raise _undecided(name or str(value.op))

    def _array(self, expr: Any) -> Any:
        if isinstance(expr, GenericConst):
            return self._constant(expr)
        if isinstance(expr, (relax.Tuple, relax.TupleGetItem)):
            return self._bound(expr)
        return self._values[expr]

    def _constant(self, expr: Any) -> Array:
        array = np.ascontiguousarray(constant(expr))
        shape, dtype = _fixed(expr)
        storage = self._weights.setdefault(content(array), Storage(Region.WEIGHTS, array.nbytes, array=array))
        return Array(storage, 0, shape, dtype)

    def _view(self, call: relax.Call) -> Array:
        base, (shape, dtype) = self._array(call.args[0]), _fixed(call)
        return Array(base.storage, base.offset, shape, dtype)

    def _call(self, call: relax.Call) -> Any:
        arguments = [self._array(each) for each in call.args[1].fields]
        types = list(call.ty_args[0].fields) if isinstance(call.ty_args[0], tvm.ir.TupleType) else [call.ty_args[0]]
        made = []
        for type_ in types:
            shape, dtype = _fixed_type(type_, call)
            storage = Storage(Region.ARENA, prod(shape) * item_bytes(dtype), first=len(self.plan.steps))
            made.append(Array(storage, 0, shape, dtype))
        self._step(Step(call.args[0].name_hint, (*arguments, *made)))
        return made[0] if len(made) == 1 and not isinstance(call.ty_args[0], tvm.ir.TupleType) else tuple(made)

    def _step(self, step: Step) -> None:
        for each in step.arguments:
            each.storage.last = len(self.plan.steps)
        self.plan.steps.append(step)

    def place_outputs(self) -> None:
        """Let steps write to the outputs; what is no step's alone is copied there."""
        result = self._array(self._function.body.body)
        for number, each in enumerate(result if isinstance(result, tuple) else (result,)):
            storage = each.storage
            if storage.region is Region.ARENA and each.offset == 0 and each.size == storage.size:
                storage.region, storage.number = Region.OUTPUT, number
                self.plan.outputs.append(each)
                continue
            made = Array(Storage(Region.OUTPUT, each.size, number), 0, each.shape, each.dtype)
            self._step(Step(COPY, (each, made)))
            self.plan.outputs.append(made)

    def place_weights(self) -> None:
        """Put weights one behind the other, in the order in which they are used."""
        offset = 0
        for storage in self._weights.values():
            storage.offset, offset = offset, whole_lines(offset + storage.size)
            self.plan.weights.append(storage)

    def place_arena(self, workspaces: Mapping[str, int]) -> None:
        """Give what steps write their places in the arena."""
        written = dict.fromkeys(
            each.storage for step in self.plan.steps for each in step.arguments if each.storage.region is Region.ARENA
        )
        lifetimes = [Lifetime(each.size, each.first, each.last) for each in written]
        needs = {number: workspaces.get(step.function, 0) for number, step in enumerate(self.plan.steps)}
        offsets, self.plan.arena_bytes = place(lifetimes, {step: need for step, need in needs.items() if need})
        for storage, offset in zip(written, offsets, strict=True):
            storage.offset = offset
        self.plan.steps = [
            replace(step, free=largest_gap(lifetimes, offsets, self.plan.arena_bytes, number))
            for number, step in enumerate(self.plan.steps)
        ]


def _undecided(what: str) -> SourceError:
    return SourceError(
        f"the network needs {what}, which plans have not: what its numbers decide, and what TVM's runtime computes, runs in TVM's"
        " virtual machine alone (tvmconv compile --format relax)"
    )


def _fixed(expr: Any) -> tuple[tuple[int, ...], str]:
    return _fixed_type(expr.ty, expr)


def _fixed_type(type_: Any, expr: Any) -> tuple[tuple[int, ...], str]:
    shape = static_shape(type_)
    if shape is None:
        name = getattr(expr, "name", "a value")
        raise SourceError(f"{name} has no fixed shape: {type_}; give the inputs' shapes")
    return tuple(shape), str(type_.dtype)
