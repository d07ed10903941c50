"""Split a kernel into two halves: one packs the filter, which callers may do once, the other computes.

Stages that pack or transform the filter are whole loop nests of a lowered function, and a schedule requests PACK on the outermost or
innermost loop of each. They become ``tvmconv_pack(filter, packed)``, the rest ``tvmconv_packed(data, packed[, bias], output)``; the plain
kernel calls both, so that a library contains each once. `packed` is one array: the buffers that the packing stages write and the rest
reads, one after another, each aligned to a cache line.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from tvm import ir, sym, tirx
from tvm.ir import TensorLoad

from ...algorithms.annotations import PACK
from ..common.rewrites import asks_for, element_at, find_all, map_nodes, refuse, rewrite_loops, settle, substitute

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in printed code
LINE = 16  # elements: 64 bytes of f32, or of pairs of bf16


@dataclass(frozen=True)
class Layout:
    """Layout of a packed filter in memory.

    Attributes
    ----------
    name
        Equal for kernels with the same packing code.
    dtype, elements
        Element type and size of the array `packed`.
    """

    name: str
    dtype: str
    elements: int

    def described(self) -> dict[str, Any]:
        """Return its entry in the manifest."""
        return {"layout": self.name, "dtype": self.dtype, "bytes": np.dtype(self.dtype).itemsize * self.elements}


@dataclass(frozen=True)
class Halves:
    """The two parts of a function's body.

    Attributes
    ----------
    pack, rest
        Statements that depend on the filter alone, and the others.
    parts
        Buffers that `pack` writes and `rest` reads.
    """

    pack: list[tirx.Stmt]
    rest: list[tirx.Stmt]
    parts: list[Any]

    @cached_property
    def layout(self) -> Layout:
        """Layout of the parts in `packed`."""
        sizes = "+".join(str(elements(part)) for part in self.parts)
        (dtype,) = {str(part.dtype) for part in self.parts}
        code = "\n".join(_by_places(each).script() for each in self.pack)
        digest = hashlib.sha256(_COLOURS.sub("", code).encode()).hexdigest()[:16]
        return Layout(f"{sizes}-{dtype}-{digest}", dtype, self._offsets[-1])

    def packed(self) -> Any:
        """Return a new buffer for `packed`, aligned only to its elements, like all arguments."""
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


def split(func: tirx.PrimFunc) -> Halves | None:
    """Split a lowered function, whose second parameter is the filter, at the stages annotated with PACK.

    None if there are no such stages, if another stage reads the filter (callers would have to pass both), or if nothing reads their
    results, because TVM has found that no tap meets data.

    Raises
    ------
    RewriteError
        If such a stage depends on more than the filter.
    """
    weights = func.params[1]
    statements = list(func.body.seq) if isinstance(func.body, tirx.SeqStmt) else [func.body]
    allocations = [each for each in statements if isinstance(each, tirx.AllocBuffer)]
    stages = [each for each in statements if not isinstance(each, tirx.AllocBuffer)]
    asking = {number: loop for number, each in enumerate(stages) if (loop := _asking(each)) is not None}
    stages = [rewrite_loops(each, PACK, lambda loop: settle(loop, PACK)) for each in stages]
    pack, rest = [stages[number] for number in asking], [s for n, s in enumerate(stages) if n not in asking]
    made, read = ({used for each in part for used in _used_buffers(each)} for part in (pack, rest))
    if weights in read or not made & read:
        return None
    if foreign := made - {weights} - {each.buffer for each in allocations}:
        refuse(next(iter(asking.values())), PACK, f"it depends on {', '.join(sorted(each.name for each in foreign))}")
    made_here = [each for each in allocations if each.buffer in made]
    return Halves(
        pack=[*(each for each in made_here if each.buffer not in read), *pack],
        rest=[*(each for each in allocations if each.buffer not in made), *rest],
        parts=[each.buffer for each in made_here if each.buffer in read],
    )


def unsplit(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function that packs its filter in each call, without annotations of PACK."""
    return func.with_body(rewrite_loops(func.body, PACK, lambda loop: settle(loop, PACK)))


def _by_places(stage: tirx.Stmt) -> tirx.Stmt:
    """Return a stage in canonical form, with numbered loops and flat arrays: schedules that index the same elements by other axes, such as
    taps of a row as channels, then compare equal.
    """
    analyzer, rows = sym.Analyzer(), dict[Any, Any]()
    loops = find_all(stage, tirx.For)
    variables = {each.loop_var: tirx.Var(f"loop{number}", "int32") for number, each in enumerate(loops)}
    for each in loops:
        analyzer.bind(variables[each.loop_var], ir.Range.from_min_extent(each.min, each.extent))

    def named(loop: Any) -> Any:
        return tirx.For(
            variables[loop.loop_var], loop.min, loop.extent, loop.kind, loop.body, annotations=loop.annotations
        )

    def place(buffer: Any, indices: Any) -> tuple[Any, list[Any]]:
        if buffer not in rows:
            rows[buffer] = tirx.decl_buffer((elements(buffer),), buffer.dtype, f"row{len(rows)}")
        return rows[buffer], [analyzer.canonical_simplify(element_at(buffer, indices))]

    def stored(store: Any) -> Any:
        row, index = place(store.buffer, store.indices)
        return tirx.BufferStore(row, store.value, index)

    def loaded(load: Any) -> Any:
        return tirx.BufferLoad(*place(load.source, load.indices))

    renamed = substitute(map_nodes(stage, tirx.For, named), variables)
    return map_nodes(map_nodes(renamed, TensorLoad, loaded), tirx.BufferStore, stored)


def _asking(stage: tirx.Stmt) -> Any:
    """Return a loop of the stage with the annotation PACK; None if there is none."""
    return next((loop for loop in find_all(stage, tirx.For) if asks_for(loop, PACK)), None)


def _used_buffers(statement: tirx.Stmt) -> set[Any]:
    """Return the buffers that a statement reads or writes, except those that it allocates."""
    return set(tirx.analysis.undefined_vars(statement, []))


def elements(buffer: Any) -> int:
    """Return a buffer's number of elements, including gaps between padded rows (storage_align)."""
    shape, strides = [int(extent) for extent in buffer.shape], [int(stride) for stride in buffer.strides]
    return shape[0] * strides[0] if strides else prod(shape)


def nbytes(buffer: Any) -> int:
    """Return a buffer's bytes; its elements may be vectors."""
    return elements(buffer) * buffer.dtype.bits * buffer.dtype.lanes // 8
