"""The extents of a network's inputs that calls give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InputError
from ...family import Extent
from .tensors import Tensor, fits

Shape = tuple[int, ...]
# Extent of random inputs where it is free.
_TYPICAL = 64


class FreeExtents:
    """Extents that calls give, by the names that inputs have in their shapes.

    Parameters
    ----------
    description
        What the library says of itself.
    inputs
        What the network takes.
    """

    def __init__(self, description: Mapping[str, Any], inputs: Sequence[Tensor]) -> None:
        self.extents = [Extent(**each) for each in description.get("extents", ())]
        self._inputs = inputs

    def of(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return the extents of inputs of these shapes, as the network's library takes them: divided by their multiples.

        Raises
        ------
        InputError
            If one is out of its range, no multiple, or not that of another of its name; it says which, and what to do.
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

    def typical(self, tensor: Tensor, size: int = _TYPICAL) -> Shape:
        """Return a shape that an input may have, of some `size` elements where its extents are free, to try the network on."""
        near = {each.name: each.near(size) for each in self.extents}
        return tuple(near[each] if isinstance(each, str) else each for each in tensor.shape)


def check_shapes(shapes: Mapping[str, Sequence[int]], inputs: Sequence[Tensor]) -> list[Shape]:
    """Return shapes in the order of the inputs that they are of; raise InputError if they are others."""
    wanted = ", ".join(map(str, inputs))
    if sorted(shapes) != sorted(each.name for each in inputs):
        raise InputError(f"{', '.join(shapes) or 'no shape'} was given; the network takes {wanted}")
    for each in inputs:
        given = shapes[each.name]
        if not fits(each, given):
            raise InputError(f"{each.name} is {'x'.join(map(str, given))}; the network takes {wanted}")
    return [tuple(shapes[each.name]) for each in inputs]
