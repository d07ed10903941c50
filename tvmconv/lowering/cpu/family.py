"""The library of a family: static kernels of a few blocks, by which `native/family.c` computes any extents.

Why blocks, and not extents as variables of one function: definitions, plans and schedules of all algorithms are of static extents, and
stay as they are; so every algorithm serves families, with the code, the checks and the bits of its static kernels, Winograd's by blocks of
whole tiles. A block is the problem of so many outputs on data that has its padding already. Within an image, its kernel reads data and writes
outputs where they lie, by distances of rows that the call gives (`images.py`). At an edge they are copied, with zeros for padding: most
algorithms copy rows of data anyway, and those that do not (depthwise, planes) take longer for small images. Outputs beyond the end are few,
because smaller blocks cover what whole ones leave. Pixels that are only carried along are one row.

All blocks are of one algorithm and one layout of the packed filter, which most of them have: a block for which the algorithm has no schedule
of that layout is left out.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import Any

import tvm
from tvm import tirx

from ...algorithms.algorithm import Algorithm
from ...algorithms.table import get
from ...dtypes import DTYPE_BYTES
from ...errors import RewriteError
from ...family import ProblemFamily
from ...problem import Problem
from ...runtime.kernel_object import Workspace
from ...runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from ...targets.cpus import LINE_BYTES
from ...targets.target import CpuTarget
from ..common.entry_points import SYMBOL, EntryPoints
from ..compiler import Choice, CompiledKernel, schedule, sketches_of
from .blocks import block_problem, bytes_by_name, cycles_of, is_flat
from .cover import Shape
from .functions import functions_of
from .images import DATA, OUTPUT
from .linker import link_family
from .lowering import Lowered, lower, workspace_bytes
from .passes import ALLOCATED
from .workspaces import allocate, block_bytes, workspace_of

# Arrays of a block that may be parts of images, if lowering can do that.
_IMAGES = tuple(map(frozenset, ((DATA, OUTPUT), (DATA,), (OUTPUT,), ())))
# Cycles of a line of a block's arrays that is copied.
_LINE_CYCLES = 8.0


@dataclass(frozen=True)
class Block:
    """A kernel of a block: its problem, its functions, which of its arrays may be parts of images, and an estimate of its cycles."""

    problem: Problem
    lowered: Lowered
    images: frozenset[str]
    cycles: float

    @property
    def array_bytes(self) -> int:
        """Bytes of its data and outputs, and of what it adds to them."""
        shape, dtype = self.problem.operands.get("residual", ((0,), "f32"))
        return sum(bytes_by_name(self.problem).values()) + DTYPE_BYTES[dtype] * prod(shape)


def write_family(
    family: ProblemFamily, target: CpuTarget, path: str | os.PathLike[str], algorithm: str, outputs: Sequence[Shape]
) -> CompiledKernel:
    """Write the library of a family, by blocks of an algorithm, of some outputs along each axis.

    Raises
    ------
    ToolchainError
        If the C compiler is missing, or fails.
    """
    blocks = blocks_of(family, target, algorithm, outputs)
    functions = {}
    for number, block in enumerate(blocks):
        own = functions_of(block.lowered.module)
        functions[f"block{number}"] = own[PACKED_SYMBOL if PACKED_SYMBOL in own else SYMBOL]
        if number == 0 and PACK_SYMBOL in own:
            functions["layout"] = own[PACK_SYMBOL]
    module = tvm.IRModule({name: func.with_attr("global_symbol", name) for name, func in functions.items()})
    allocated = allocate(module, target.tvm())
    layout, used = blocks[0].lowered.layout, get(algorithm)
    executable = tvm.compile(allocated, target.tvm(used.ordered), tir_pipeline=ALLOCATED)
    packed = layout.described() if layout else None
    link_family(
        executable, path, table_of(family, blocks), _workspaces(functions_of(allocated), blocks, packed), target.isa
    )
    workspace = max(workspace_bytes(each.lowered.module) + each.array_bytes for each in blocks)
    return CompiledKernel(used.name, used.version, used.numerical_class, SYMBOL, packed, workspace)


def _workspaces(
    allocated: Mapping[str, tirx.PrimFunc], blocks: list[Block], packed: Mapping[str, Any] | None
) -> dict[str, Workspace]:
    """Return what a family's functions allocate: the copies of a block's arrays, and what its kernel does, in a task or by itself."""
    shared = task = 0
    for number, block in enumerate(blocks):
        own = workspace_of(allocated[f"block{number}"].body)
        copies = block_bytes(block.array_bytes + 3 * LINE_BYTES)
        shared, task = max(shared, copies + own.shared), max(task, copies + own.shared + own.task)
    found = {SYMBOL: Workspace(shared, task)}
    if packed:
        pack = workspace_of(allocated["layout"].body)
        found |= {PACK_SYMBOL: pack, PACKED_SYMBOL: Workspace(shared, task)}
        room = max(shared, pack.shared) + block_bytes(packed["bytes"])
        found[SYMBOL] = Workspace(room, max(task, pack.task))
    return found


def blocks_of(family: ProblemFamily, target: CpuTarget, algorithm: str, outputs: Sequence[Shape]) -> list[Block]:
    """Return the blocks of some outputs, those of the layout of the packed filter that most of them have."""
    used = get(algorithm)
    ways = [_lower(block_problem(family, each), target, used) for each in outputs]
    first = [next(each) for each in ways]
    layout = Counter(each.lowered.layout for each in first).most_common(1)[0][0]
    alike = (
        next((way for way in chain([block], others) if way.lowered.layout == layout), None)
        for block, others in zip(first, ways, strict=True)
    )
    return [each for each in alike if each is not None]


def _lower(problem: Problem, target: CpuTarget, algorithm: Algorithm) -> Iterator[Block]:
    """Yield a block by each of the algorithm's schedules, with as many of its arrays in place as lowering allows."""
    _, sketches = sketches_of(algorithm.name, problem, target, EntryPoints.PACKED)
    for sketch in range(len(sketches)):
        definition, scheduled = schedule(problem, target, Choice(algorithm.name, sketch), EntryPoints.PACKED)
        for images in _IMAGES:
            try:
                lowered = lower(scheduled.mod, replace(definition, images=images), EntryPoints.PACKED)
            except RewriteError:
                if not images:
                    raise
                continue
            lines = sum(size for name, size in bytes_by_name(problem).items() if name not in images) / LINE_BYTES
            yield Block(problem, lowered, images, cycles_of(problem, target, algorithm) + _LINE_CYCLES * lines)
            break


def table_of(family: ProblemFamily, blocks: list[Block]) -> str:
    """Return the C file that says what `native/family.c` is to compute."""
    f, operands = family, list(blocks[0].problem.operands)
    layout = blocks[0].lowered.layout
    spans = [d * (k - 1) + 1 for k, d in zip(f.kernel, f.dilations, strict=True)]
    rows = [
        f"{{__tvm_ffi_block{number}, {_row(each.problem.out_spatial)}, {_row(each.problem.in_spatial)}, {int(DATA in each.images)}, "
        f"{int(OUTPUT in each.images)}, {each.cycles:.0f}}}"
        for number, each in enumerate(blocks)
    ]
    packed = f"__tvm_ffi_layout, {layout.elements}, {_dl_type(layout.dtype)}" if layout else "0, 0, {0, 0, 0}"
    names = [*(f"block{number}" for number in range(len(blocks))), *(["layout"] if layout else [])]
    between = ",\n    "
    declared = "\n".join(f"int __tvm_ffi_{name}(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);" for name in names)
    return f"""\
#include "family.h"

{declared}
static const Block blocks[] = {{
    {between.join(rows)}}};
static const Family family = {{
    {f.rank}, {int(f.data_format == "NXC")}, {int(f.op != "convolution")}, {int(is_flat(f))}, {f.zero_point & 255}, {_row(f.strides)}, {_row(spans)},
    {len(operands)}, {operands.index("residual") if "residual" in operands else 0}, {len(blocks)}, blocks, {packed}}};
const Family* tvmconv_family(void) {{ return &family; }}
"""


def _dl_type(dtype: str) -> str:
    """Return C's DLDataType of a type such as ``"uint32"``."""
    kind = dtype.rstrip("0123456789")
    return f"{{{ {'float': 'kDLFloat', 'uint': 'kDLUInt', 'int': 'kDLInt'}[kind] }, {dtype.removeprefix(kind)}, 1}}"


def _row(numbers: object) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"  # type: ignore[call-overload]
