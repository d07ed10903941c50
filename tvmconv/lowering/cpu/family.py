"""The library of a family: static kernels of a few blocks, by which `native/family.c` computes any extents.

Blocks are used instead of symbolic extents because definitions, plans and schedules of all algorithms have static extents, and stay as they
are: every algorithm serves families, with the code, the checks and the bits of its static kernels, Winograd's by blocks of whole tiles. A
block is the problem of some outputs on data that includes its padding. Within an image, its kernel reads data and writes outputs in place,
with strides given by the call (`images.py`). At an edge, a kernel with loops over taps that reads data in place leaves out taps that meet
only padding (`tap_ranges.py`), in regions cut where padding begins and ends; for other kernels data is copied, with zeros for padding, as
most algorithms copy rows of data anyway. Few outputs beyond the end are computed, because smaller blocks cover what whole ones leave. Pixels
of pointwise convolutions are one row.

Blocks of an algorithm have one layout of the packed filter, the most frequent one: a block for which the algorithm has no schedule with
that layout is left out. Where blocks of another algorithm save much, as where Winograd's filters are too large for few pixels, the packed
filter has both layouts.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
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
from ...runtime.bundle import NUMERICAL_CLASSES
from ...runtime.kernel_object import Workspace
from ...runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from ...targets.cpus import LINE_BYTES
from ...targets.target import CpuTarget
from ..common.entry_points import SYMBOL, EntryPoints
from ..compiler import Choice, CompiledKernel, schedule, sketches_of
from .blocks import block_problem, bytes_by_name, copy_cycles, cost_of, is_flat
from .cover import Cost, Shape
from .functions import functions_of
from .images import DATA, OUTPUT
from .linker import link_family
from .lowering import Lowered, lower, workspace_bytes
from .packing import LINE, Layout
from .passes import ALLOCATED
from .tap_ranges import by_tap_ranges
from .workspaces import allocate, block_bytes, workspace_of

# Arrays of a block used in place in images, best first; lowering may not support all.
_IMAGES = tuple(map(frozenset, ((DATA, OUTPUT), (DATA,), (OUTPUT,), ())))


@dataclass(frozen=True)
class Block:
    """A block's kernel: its algorithm's name, problem, functions, the arrays that it uses in place in images, whether it sums ranges of
    taps, and its cost.
    """

    algorithm: str
    problem: Problem
    lowered: Lowered
    images: frozenset[str]
    by_taps: bool
    cost: Cost

    @property
    def array_bytes(self) -> int:
        """Bytes of its data, outputs and residual."""
        shape, dtype = self.problem.operands.get("residual", ((0,), "f32"))
        return sum(bytes_by_name(self.problem).values()) + DTYPE_BYTES[dtype] * prod(shape)


@dataclass(frozen=True)
class PackedLayouts:
    """Layouts to which the filter is packed, one after another; None is the plain filter."""

    layouts: tuple[Layout | None, ...]

    @staticmethod
    def of(blocks: Sequence[Block]) -> PackedLayouts:
        """Return the layouts of blocks; none if all read the plain filter."""
        found = tuple(dict.fromkeys(each.lowered.layout for each in blocks))
        return PackedLayouts(found if any(found) else ())

    def number(self, block: Block) -> int:
        """Return the number of the layout that a block reads."""
        return self.layouts.index(block.lowered.layout) if self.layouts else 0

    def offsets(self, plain: int) -> list[int]:
        """Return the element at which each layout begins, and the end of the last, for a plain filter of `plain` elements."""
        sizes = [each.elements if each else -(-plain // LINE) * LINE for each in self.layouts]
        return [0, *accumulate(sizes)]

    def described(self, plain: int) -> dict[str, Any] | None:
        """Return the packed filter's entry in the manifest."""
        packed = next(filter(None, self.layouts), None)
        if packed is None:
            return None
        names = [each.name if each else "plain" for each in self.layouts]
        return Layout("+".join(names), packed.dtype, self.offsets(plain)[-1]).described()


def write_family(
    family: ProblemFamily,
    target: CpuTarget,
    path: str | os.PathLike[str],
    algorithm: str,
    chosen: Sequence[tuple[str, Shape]],
) -> CompiledKernel:
    """Write the library of a family, named after `algorithm`, with blocks of the `chosen` algorithms and outputs."""
    blocks = blocks_of(family, target, chosen)
    packing = PackedLayouts.of(blocks)
    functions = {}
    for number, block in enumerate(blocks):
        own = functions_of(block.lowered.module)
        functions[f"block{number}"] = own[PACKED_SYMBOL if PACKED_SYMBOL in own else SYMBOL]
        if PACK_SYMBOL in own:
            functions.setdefault(f"layout{packing.number(block)}", own[PACK_SYMBOL])
    module = tvm.IRModule({name: func.with_attr("global_symbol", name) for name, func in functions.items()})
    allocated = allocate(module, target.tvm())
    used = get(algorithm)
    executable = tvm.compile(allocated, target.tvm(used.ordered), tir_pipeline=ALLOCATED)
    packed = packing.described(prod(blocks[0].problem.filter_shape))
    table, workspaces = table_of(family, blocks, packing), _workspaces(functions_of(allocated), blocks, packed)
    link_family(executable, path, table, workspaces, target.isa)
    workspace = max(workspace_bytes(each.lowered.module) + each.array_bytes for each in blocks)
    numerical_class = max((get(each.algorithm).numerical_class for each in blocks), key=NUMERICAL_CLASSES.index)
    return CompiledKernel(used.name, used.version, numerical_class, SYMBOL, packed, workspace)


def _workspaces(
    allocated: Mapping[str, tirx.PrimFunc], blocks: list[Block], packed: Mapping[str, Any] | None
) -> dict[str, Workspace]:
    """Return the allocations of a family's functions: copies of a block's arrays and its kernel's workspace, shared and for each task."""
    shared = task = 0
    for number, block in enumerate(blocks):
        own = workspace_of(allocated[f"block{number}"].body)
        copies = block_bytes(block.array_bytes + 3 * LINE_BYTES)
        shared, task = max(shared, copies + own.shared), max(task, copies + own.shared + own.task)
    found = {SYMBOL: Workspace(shared, task)}
    if packed:
        packs = [workspace_of(func.body) for name, func in allocated.items() if name.startswith("layout")]
        pack = Workspace(max(each.shared for each in packs), max(each.task for each in packs))
        found |= {PACK_SYMBOL: pack, PACKED_SYMBOL: Workspace(shared, task)}
        room = max(shared, pack.shared) + block_bytes(packed["bytes"])
        found[SYMBOL] = Workspace(room, max(task, pack.task))
    return found


def blocks_of(family: ProblemFamily, target: CpuTarget, chosen: Sequence[tuple[str, Shape]]) -> list[Block]:
    """Return the blocks of the chosen algorithms and outputs, without those that lack their algorithm's most frequent layout."""
    ways = [_lower(family, outputs, target, get(name)) for name, outputs in chosen]
    first = [next(each) for each in ways]
    common = {
        name: Counter(each.lowered.layout for each in first if each.algorithm == name).most_common(1)[0][0]
        for name in dict.fromkeys(name for name, _ in chosen)
    }
    alike = (
        next((way for way in chain([block], others) if way.lowered.layout == common[block.algorithm]), None)
        for block, others in zip(first, ways, strict=True)
    )
    return [each for each in alike if each is not None]


def _lower(family: ProblemFamily, outputs: Shape, target: CpuTarget, algorithm: Algorithm) -> Iterator[Block]:
    """Yield a block for each of the algorithm's schedules, with the most arrays in place that lowering supports."""
    problem = block_problem(family, outputs)
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
            lowered, by_taps = _by_tap_ranges(lowered, problem)
            cost = cost_of(family, outputs, target, algorithm, by_taps)
            copied = sum(size for name, size in bytes_by_name(problem).items() if name not in images)
            copy = cost.copy if DATA in images else 0.0
            cost = cost._replace(call=cost.call + copy_cycles(copied, target), copy=copy)
            yield Block(algorithm.name, problem, lowered, images, by_taps, cost)
            break


def _by_tap_ranges(lowered: Lowered, problem: Problem) -> tuple[Lowered, bool]:
    """Return a block's functions, with ranges of taps as arguments of its kernel, and whether the kernel uses them."""
    functions = functions_of(lowered.module)
    symbol = PACKED_SYMBOL if PACKED_SYMBOL in functions else SYMBOL
    functions[symbol], by_taps = by_tap_ranges(functions[symbol], problem)
    return replace(lowered, module=tvm.IRModule(functions)), by_taps


def table_of(family: ProblemFamily, blocks: list[Block], packing: PackedLayouts) -> str:
    """Return the C file with a family's tables for `native/family.c`."""
    f, operands, filter_shape = family, list(blocks[0].problem.operands), blocks[0].problem.filter_shape
    spans = [d * (k - 1) + 1 for k, d in zip(f.kernel, f.dilations, strict=True)]
    rows = [
        f"{{__tvm_ffi_block{number}, {_row(each.problem.out_spatial)}, {_row(each.problem.in_spatial)}, {int(DATA in each.images)}, "
        f"{int(OUTPUT in each.images)}, {int(each.by_taps)}, {each.cost.call:.0f}, {each.cost.sums:.0f}, {each.cost.copy:.0f}, {packing.number(each)}}}"
        for number, each in enumerate(blocks)
    ]
    offsets = packing.offsets(prod(filter_shape))
    layouts = [
        f"{{__tvm_ffi_layout{number}, {offset}, {_dl_type(each.dtype)}, 1, {{{each.elements}}}}}"
        if each
        else f"{{0, {offset}, {{kDLFloat, 32, 1}}, {len(filter_shape)}, {_row(filter_shape)}}}"
        for number, (each, offset) in enumerate(zip(packing.layouts, offsets, strict=False))
    ]
    dtype = next((_dl_type(each.dtype) for each in packing.layouts if each), "{0, 0, 0}")
    names = [f"block{number}" for number in range(len(blocks))]
    names += [f"layout{number}" for number, each in enumerate(packing.layouts) if each]
    between = ",\n    "
    declared = "\n".join(f"int __tvm_ffi_{name}(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);" for name in names)
    return f"""\
#include "family.h"

{declared}
static const Block blocks[MOST_BLOCKS] = {{
    {between.join(rows)}}};
static const Layout layouts[] = {{
    {between.join(layouts or ["{0, 0, {0, 0, 0}, 0, {0}}"])}}};
static const Family family = {{
    {f.rank}, {int(f.data_format == "NXC")}, {int(f.op != "convolution")}, {int(is_flat(f))}, {f.zero_point & 255}, {_row(f.strides)}, {_row(spans)},
    {_row(f.kernel)}, {_row(f.dilations)}, {_row(blocks[0].problem.pads_begin)},
    {len(operands)}, {operands.index("residual") if "residual" in operands else 0}, {len(blocks)}, blocks, {len(layouts)}, layouts, {offsets[-1]}, {dtype}}};
const Family* tvmconv_family(void) {{ return &family; }}
"""


def _dl_type(dtype: str) -> str:
    """Return C's DLDataType of a type such as ``"uint32"``."""
    kind = dtype.rstrip("0123456789")
    return f"{{{ {'float': 'kDLFloat', 'uint': 'kDLUInt', 'int': 'kDLInt'}[kind] }, {dtype.removeprefix(kind)}, 1}}"


def _row(numbers: object) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"  # type: ignore[call-overload]
