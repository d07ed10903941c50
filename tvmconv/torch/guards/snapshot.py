"""`Snapshot`: the present state of objects, compared later by functions in C."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from operator import attrgetter, is_
from typing import Any

import torch

from ...frontends.torch.memory import address

# Version of a dict, which changes with each write; Dynamo's C function, which needs no import of Dynamo.
_dict_version: Callable[[dict[Any, Any]], int] = torch._C._dynamo.guards.dict_version
_VERSION = attrgetter("_version")
# Compare the memory, offset, shape and strides of two tensors.
_IS_SET_TO = torch.Tensor.is_set_to
_OF_OBJECT = attrgetter("__class__", "__dict__")
_OF_FUNCTION = attrgetter("__code__", "__defaults__", "__kwdefaults__")
_CONTENTS = attrgetter("cell_contents")


class Snapshot:
    """Mutable objects of all kinds.

    Attributes
    ----------
    objects, functions, cells, slots
        Objects with attributes, functions, closure cells, attributes of objects without a dict.
    sequences, arrays, buffers, tensors
        Lists and sets, arrays of NumPy, other objects with a buffer, tensors.
    asked
        Functions that return PyTorch's settings.
    """

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.functions: list[Any] = []
        self.cells: list[Any] = []
        self.slots: list[tuple[Any, str]] = []
        self.sequences: list[Any] = []
        self.arrays: list[Any] = []
        self.buffers: list[Any] = []
        self.tensors: list[Any] = []
        self.asked: list[Callable[[], Any]] = []
        self._empty: list[dict[Any, Any]] = []
        self._dicts: dict[int, tuple[dict[Any, Any], set[Any] | None]] = {}

    def mapping(self, mapping: dict[Any, Any], names: Any) -> None:
        """Hold a dict's values: of `names`, or all."""
        if not mapping:
            self._empty.append(mapping)
            return
        known = self._dicts.get(id(mapping), (mapping, set()))[1]
        self._dicts[id(mapping)] = (mapping, None if names is None or known is None else known | set(names))

    def seal(self) -> None:
        """Record the present state."""
        self._mappings = [*self._dicts.values()]
        self._kept = [_values(*each) for each in self._mappings]
        self._live = [each for each, _ in self._mappings]
        self._versions = [*map(_dict_version, self._live)]
        self._memory = [
            each.detach() for each in self.tensors
        ]  # so that no other object is allocated at their addresses
        self._counted = [each for each in self.tensors if not each.is_inference()]
        self._counts, self._addresses = [*map(_VERSION, self._counted)], [*map(address, self.tensors)]
        pairs = [each for each in zip(self.tensors, self._memory, strict=True) if each[0].layout == torch.strided]
        self._placed, self._places = [one for one, _ in pairs], [kept for _, kept in pairs]
        slots = partial(map, getattr, *zip(*self.slots, strict=True)) if self.slots else None
        groups: list[tuple[Any, Callable[[], Iterable[Any]]]] = [
            (self.objects, lambda: chain.from_iterable(map(_OF_OBJECT, self.objects))),
            (self.functions, lambda: chain.from_iterable(map(_OF_FUNCTION, self.functions))),
            (self.sequences, lambda: chain.from_iterable(self.sequences)),
            (self.slots, lambda: slots() if slots else ()),
            (self.cells, lambda: map(_CONTENTS, self.cells)),
            (self.asked, lambda: [each() for each in self.asked]),
        ]
        self._lengths = [*map(len, self.sequences)]
        self._groups = [(now, [*now()]) for each, now in groups if each]
        self._bytes = self._all_bytes()

    def _all_bytes(self) -> list[bytes]:
        return [each.tobytes() for each in chain(self.arrays, map(memoryview, self.buffers))]

    def is_same(self) -> bool:
        """Return whether the state is unchanged."""
        try:
            if (
                any(self._empty)
                or [*map(_VERSION, self._counted)] != self._counts
                or [*map(address, self.tensors)] != self._addresses
                or not all(map(_IS_SET_TO, self._placed, self._places))
                or ([*map(_dict_version, self._live)] != self._versions and not self._are_same())
            ):
                return False
            if self.sequences and [*map(len, self.sequences)] != self._lengths:
                return False
            for now, then in self._groups:
                if not all(map(is_, now(), then)):
                    return False
            return not (self.arrays or self.buffers) or self._all_bytes() == self._bytes
        except (AttributeError, RuntimeError, ValueError):  # an object is gone, or changes at this moment
            return False

    def _are_same(self) -> bool:
        """Return whether dicts that were written to still have the same held values."""
        versions = [*map(_dict_version, self._live)]
        for at, (now, then) in enumerate(zip(versions, self._versions, strict=True)):
            if now != then:
                keys, values = _values(*self._mappings[at])
                if keys != self._kept[at][0] or not all(map(is_, values, self._kept[at][1])):
                    return False
        self._versions = versions
        return True


def _values(mapping: dict[Any, Any], names: set[Any] | None) -> tuple[list[Any], list[Any]]:
    if names is None:
        return [*mapping], [*mapping.values()]
    few, many = (mapping, names) if len(mapping) < len(names) else (names, mapping)
    keys = [each for each in few if each in many]
    return keys, [mapping[each] for each in keys]
