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
from ...checks import LARGEST
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
from .functions import functions_of
from .images import DATA, OUTPUT
from .linker import link_family
from .lowering import Lowered, lower, workspace_bytes
from .passes import ALLOCATED
from .workspaces import allocate, block_bytes, workspace_of

# Outputs along each axis of the largest block, the first whose arrays leave half of L2 to the filter, or else the last.
_LARGEST = {
    1: ((1536,), (384,), (192,)),
    2: ((56, 56), (28, 56), (28, 28)),
    3: ((4, 28, 28), (4, 14, 28), (4, 14, 14), (2, 14, 14)),
}
# Outputs of the others. By estimate, for 12 sizes from 7x7 to 112x112, 3x3 taps of 64, 128 and 256 channels, with these seven direct
# convolution takes 1.01 to 1.05 of the time of a kernel of the size, by the mean, and Winograd's 1.04 to 1.06; with four others
# (12x12, 4x24, 4x6, 1x24) 1.13 to 1.20, and 1.37 to 1.39.
_OTHERS = {
    1: ((192,), (48,), (14,), (6,), (5,)),
    2: ((20, 20), (14, 14), (7, 7), (4, 24), (4, 4), (1, 24), (1, 5)),
    3: ((2, 7, 7), (1, 4, 24), (1, 4, 4)),
}
# Whole tiles, of algorithms that compute tiles of 4 or 2 outputs along an axis: 38 sizes from 5x5 to 112x157 take by estimate 1.06 of the
# time of a kernel of the size by `winograd4`, at most 1.34; with the others, 1.17 and 1.98.
_WHOLE_TILES = {
    1: ((192,), (48,), (16,), (8,), (4,)),
    2: ((20, 20), (16, 16), (12, 12), (8, 8), (4, 24), (4, 4)),
    3: ((2, 8, 8), (1, 4, 24), (1, 4, 4)),
}
# Arrays of a block that may be parts of images, if lowering can do that.
_IMAGES = tuple(map(frozenset, ((DATA, OUTPUT), (DATA,), (OUTPUT,), ())))
# Cycles, beside the kernel's, of a block, and of a line of its arrays that is copied.
BLOCK_CYCLES, _LINE_CYCLES = 800.0, 8.0


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
        return _array_bytes(self.problem) + DTYPE_BYTES[dtype] * prod(shape)


def is_flat(family: ProblemFamily) -> bool:
    """Return whether pixels are only carried along."""
    ones = (1,) * family.rank
    zeros = ((0,) * family.rank,) * 2
    return (
        family.op == "convolution"
        and family.kernel == ones == family.strides
        and family.pads in (zeros, "same_upper", "same_lower")
    )


def write_family(
    family: ProblemFamily, target: CpuTarget, path: str | os.PathLike[str], algorithm: str
) -> CompiledKernel:
    """Write the library of a family, by blocks of an algorithm.

    Raises
    ------
    ToolchainError
        If the C compiler is missing, or fails.
    """
    blocks = blocks_of(family, target, algorithm)
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


def block_problems(family: ProblemFamily, target: CpuTarget, algorithm: Algorithm) -> list[Problem]:
    """Return the problems of a family's blocks that an algorithm computes, the largest first."""
    others = _WHOLE_TILES if "points" in algorithm.options else _OTHERS
    problems = (block_problem(family, outputs) for outputs in _extents(family, target, others))
    return [each for each in problems if algorithm.covers(each, target) is None]


def largest_block(family: ProblemFamily, target: CpuTarget) -> Problem:
    """Return the problem of a family's largest block, by any algorithm."""
    return block_problem(family, next(_extents(family, target, {})))


def blocks_of(family: ProblemFamily, target: CpuTarget, algorithm: str) -> list[Block]:
    """Return the blocks that an algorithm computes, of the layout of the packed filter that most of them have, the largest first."""
    used = get(algorithm)
    ways = [_lower(each, target, used) for each in block_problems(family, target, used)]
    first = [next(each) for each in ways]
    layout = Counter(each.lowered.layout for each in first).most_common(1)[0][0]
    alike = (
        next((way for way in chain([block], others) if way.lowered.layout == layout), None)
        for block, others in zip(first, ways, strict=True)
    )
    return [each for each in alike if each is not None]


def block_problem(family: ProblemFamily, outputs: tuple[int, ...]) -> Problem:
    """Return the problem of a block of so many outputs, which reads no padding of its own.

    Of a transposed convolution, outputs are a multiple of the stride, and the first reads data for its last tap.
    """
    f = family
    spans = [d * (k - 1) + 1 for k, d in zip(f.kernel, f.dilations, strict=True)]
    axes = list(zip(outputs, f.strides, spans, strict=True))
    if f.op == "convolution":
        begin, inputs = [0] * f.rank, [(y - 1) * s + span for y, s, span in axes]
        end = begin
    else:
        begin, inputs = [span - 1 for span in spans], [(y + span - 2) // s + 1 for y, s, span in axes]
        end = [max(s * (x - 1) + span - b - y, 0) for (y, s, span), x, b in zip(axes, inputs, begin, strict=True)]
    return Problem(
        f.op, 1, f.in_channels, tuple(inputs), f.out_channels, outputs, f.kernel, f.strides, f.dilations, tuple(begin), tuple(end),
        f.groups, f.data_format, f.filter_format, f.dtype, f.bias, f.epilogue, f.zero_point,
        f.filter_zero_point, f.bias_dtype,
    )  # fmt: skip


def _extents(
    family: ProblemFamily, target: CpuTarget, others: Mapping[int, Sequence[tuple[int, ...]]]
) -> Iterator[tuple[int, ...]]:
    """Yield the outputs of blocks, the largest first: along an axis that is not free no more than it has, but for pads."""
    flat = is_flat(family)
    rank = 1 if flat else family.rank
    transposed = family.op != "convolution"
    axes = list(zip(family.in_spatial, family.strides, strict=True))
    most = [LARGEST if x.is_free or flat else x.low * s if transposed else -(-x.low // s) for x, s in axes]

    def whole(outputs: tuple[int, ...]) -> tuple[int, ...]:
        outputs = (1,) * (family.rank - rank) + outputs
        outputs = tuple(max(min(y, limit), 1) for y, limit in zip(outputs, most, strict=True))
        return tuple(-(-y // s) * s for y, (_, s) in zip(outputs, axes, strict=True)) if transposed else outputs

    sizes = [whole(outputs) for outputs in _LARGEST[rank]]
    fitting = (each for each in sizes if _array_bytes(block_problem(family, each)) <= target.l2 // 2)
    first = next(fitting, sizes[-1])
    yield first
    for other in dict.fromkeys(map(whole, others.get(rank, ()))):
        if prod(other) < prod(first):
            yield other


def _array_bytes(problem: Problem) -> int:
    return sum(_bytes_by_name(problem).values())


def _bytes_by_name(problem: Problem) -> dict[str, int]:
    types = problem.types
    return {
        DATA: DTYPE_BYTES[types.data] * prod(problem.data_shape),
        OUTPUT: DTYPE_BYTES[types.output] * prod(problem.output_shape),
    }


def _cycles(problem: Problem, images: frozenset[str], target: CpuTarget, algorithm: Algorithm) -> float:
    lines = sum(size for name, size in _bytes_by_name(problem).items() if name not in images) / LINE_BYTES
    return algorithm.cycles(problem, target) + BLOCK_CYCLES + _LINE_CYCLES * lines


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
            yield Block(problem, lowered, images, _cycles(problem, images, target, algorithm))
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
