"""A kernel cut in two: what depends on the filter alone, which callers may have done once, and the rest.

Stages that lay the filter out anew, or transform it, stand in a lowered function as whole loops. They become
``tvmconv_pack(filter, packed)`` and the rest ``tvmconv_packed(data, packed[, bias], output)``; the plain kernel calls
one after the other, so that a library holds each once. `packed` is one array: the stages' buffers that the rest
reads, one after another, each from a cache line on.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # of the printed code
LINE = 16  # elements: 64 bytes of f32, or of pairs of bf16


@dataclass(frozen=True)
class Layout:
    """How a packed filter lies in memory.

    Attributes
    ----------
    name
        Equal for kernels that pack by the same code, be the rest of them as it may.
    dtype, elements
        What the array `packed` consists of.
    """

    name: str
    dtype: str
    elements: int

    def described(self) -> dict[str, Any]:
        """Return what a manifest says of it."""
        return {"layout": self.name, "dtype": self.dtype, "bytes": 4 * self.elements}


@dataclass(frozen=True)
class Cut:
    """The two parts of a function's body.

    Attributes
    ----------
    pack, rest
        What depends on the filter alone, and the remainder.
    parts
        The buffers that `pack` writes and `rest` reads.
    """

    pack: list[tirx.Stmt]
    rest: list[tirx.Stmt]
    parts: list[Any]

    @cached_property
    def layout(self) -> Layout:
        """How the parts lie in `packed`."""
        code = "\n".join(each.script() for each in [*map(tirx.AllocBuffer, self.parts), *self.pack])
        shapes = "+".join("x".join(str(int(extent)) for extent in part.shape) for part in self.parts)
        (dtype,) = {str(part.dtype) for part in self.parts}
        digest = hashlib.sha256(_COLOURS.sub("", code).encode()).hexdigest()[:16]
        return Layout(f"{shapes}-{dtype}-{digest}", dtype, self._offsets[-1])

    def packed(self) -> Any:
        """Return a new buffer for `packed`, aligned to its elements alone, as all arguments are."""
        return tirx.decl_buffer((self.layout.elements,), self.layout.dtype, "packed", data_alignment=4)

    def views(self, packed: Any) -> list[tirx.Stmt]:
        """Return statements that make each part a view of the buffer `packed`."""
        return [
            tirx.DeclBuffer(part, data=tirx.address_of(tirx.BufferLoad(packed, [offset])))
            for part, offset in zip(self.parts, self._offsets, strict=False)
        ]

    @property
    def _offsets(self) -> list[int]:
        """The element at which each part begins, and the one after the last."""
        offsets = [0]
        for part in self.parts:
            offsets.append(offsets[-1] + -(-elements(part) // LINE) * LINE)
        return offsets


def cut(func: tirx.PrimFunc) -> Cut | None:
    """Cut a lowered function, whose second parameter is the filter; None if no whole statement depends on that alone.

    None too if another statement reads the filter itself: callers would have to give both.
    """
    statements = list(func.body.seq) if isinstance(func.body, tirx.SeqStmt) else [func.body]
    allocations = [each for each in statements if isinstance(each, tirx.AllocBuffer)]
    made, others = {func.params[1]}, set(func.params) - {func.params[1]}
    pack: list[tirx.Stmt] = []
    rest: list[tirx.Stmt] = []
    for each in statements:
        used = _used(each)
        if used & made and not used & others:
            pack.append(each)
            made |= used
        elif used:  # an allocation uses nothing
            rest.append(each)
            others |= used - made
    if not pack or any(func.params[1] in _used(each) for each in rest):
        return None
    read = {used for each in rest for used in _used(each)}
    made_here = [each for each in allocations if each.buffer in made]
    return Cut(
        pack=[*(each for each in made_here if each.buffer not in read), *pack],
        rest=[*(each for each in allocations if each.buffer not in made), *rest],
        parts=[each.buffer for each in made_here if each.buffer in read],
    )


def _used(statement: tirx.Stmt) -> set[Any]:
    """Return the buffers that a statement reads or writes, those that it allocates itself apart."""
    return set(tirx.analysis.undefined_vars(statement, []))


def elements(buffer: Any) -> int:
    """Return the elements that a buffer spans: rows may be spread out (storage_align), as the outermost stride tells."""
    shape, strides = [int(extent) for extent in buffer.shape], [int(stride) for stride in buffer.strides]
    return shape[0] * strides[0] if strides else prod(shape)
