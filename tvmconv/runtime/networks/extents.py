"""The free extents of a network's inputs, which each call determines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import Any

from ...errors import InputError
from ...family import Extent
from .tensors import Tensor, fits

Shape = tuple[int, ...]
# Size of free extents of random inputs.
_TYPICAL = 64


class FreeExtents:
    """Free extents, by their names in the inputs' shapes."""

    def __init__(self, description: Mapping[str, Any], inputs: Sequence[Tensor]) -> None:
        self.extents = [Extent(**each) for each in description.get("extents", ())]
        self._inputs = inputs

    def of(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return the extents of inputs of some shapes in the form of the network's library: divided by their multiples.

        Raises
        ------
        InputError
            If one is out of range, no multiple, or differs from another of its name; the message says which, and what to do.
        """
        found: dict[str, tuple[int, str]] = {}
        for tensor, shape in zip(self._inputs, shapes, strict=True):
            for axis, (name, size) in enumerate(zip(tensor.shape, shape, strict=True)):
                if not isinstance(name, str):
                    continue
                where = f"extent {axis} of {tensor.name}"
                value, other = found.setdefault(name, (size, where))
                if value != size:
                    raise InputError(
                        f"{where} is {size} and {other} {value}, both {name}, which is one extent: pad the smaller"
                    )
        for each in self.extents:
            value, where = found[each.name]
            if reason := each.obstacle(value):
                raise InputError(f"{where} {reason}; the network takes {', '.join(map(str, self._inputs))}")
        return tuple(found[each.name][0] // each.multiple for each in self.extents)

    def near(
        self, size: int = _TYPICAL, batch: int = 1, given: Mapping[str, Sequence[int]] | None = None
    ) -> list[Tensor]:
        """Return the inputs with valid shapes, for trials of the network.

        Parameters
        ----------
        size, batch
            Approximate free extents; `batch` is for those that are only ever the first of several axes.
        given
            Shapes of inputs by name, which determine their extents.
        """
        others = {name for each in self._inputs for name in each.shape[len(each.shape) > 1 :]}
        known = {each.name: each.near(size if each.name in others else batch) for each in self.extents}
        for tensor in self._inputs:
            shape = (given or {}).get(tensor.name, ())
            known |= {name: one for name, one in zip(tensor.shape, shape, strict=False) if name in known}
        return [replace(each, shape=tuple(known.get(size, size) for size in each.shape)) for each in self._inputs]


def check_shapes(shapes: Mapping[str, Sequence[int]], inputs: Sequence[Tensor]) -> list[Shape]:
    """Return shapes, given by the inputs' names, in the order of the inputs; raise InputError if they do not fit."""
    wanted = ", ".join(map(str, inputs))
    if sorted(shapes) != sorted(each.name for each in inputs):
        raise InputError(f"{', '.join(shapes) or 'no shape'} was given; the network takes {wanted}")
    found = []
    for each in inputs:
        try:
            given = tuple(map(index, shapes[each.name]))
        except TypeError:
            raise InputError(
                f"{each.name} is {shapes[each.name]!r:.80}; give a shape, a sequence of integers"
            ) from None
        if not fits(each, given):
            raise InputError(f"{each.name} is {'x'.join(map(str, given))}; the network takes {wanted}")
        found.append(given)
    return found
