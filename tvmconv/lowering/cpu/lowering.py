"""Lower a scheduled function to one that TVM compiles: every pass of `LOWERING`, in order."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm_ffi.structural import structural_map

from ...algorithms.definition import Definition
from ..common.entry_points import EntryPoints
from .packing import Layout, nbytes
from .passes import LOWERING, PassKernel, requests


@dataclass(frozen=True)
class Lowered:
    """A kernel ready for `tvm.compile` with the pipeline of `tvmconv.lowering.cpu.passes`.

    Attributes
    ----------
    module
        The function SYMBOL; and PACK_SYMBOL and PACKED_SYMBOL if the kernel packs its filter.
    layout
        What PACK_SYMBOL writes; None: the filter is read in place.
    """

    module: tvm.IRModule
    layout: Layout | None


def lower(
    mod: tvm.IRModule,
    definition: Definition,
    entry_points: EntryPoints = EntryPoints.BOTH,
    last: str = LOWERING[-1].name,
) -> Lowered:
    """Return the scheduled module with kernel arguments and without blocks, as it is after the pass called `last`.

    Without ``PLAIN`` it has no SYMBOL where it has PACKED_SYMBOL.
    """
    kernel = PassKernel(mod, definition, entry_points, requests(mod["main"]))
    for each in LOWERING:
        kernel = each(kernel)
        if each.name == last:
            break
    return Lowered(kernel.module, kernel.halves.layout if kernel.halves else None)


def workspace_bytes(module: tvm.IRModule) -> int:
    """Return the bytes of intermediate arrays that one thread of a lowered kernel holds, registers and stack tiles apart."""
    sizes = []

    def size(node: tirx.AllocBuffer) -> tirx.AllocBuffer:
        if node.buffer.scope() != "local":
            sizes.append(nbytes(node.buffer))
        return node

    for function in module.functions.values():
        structural_map(function, (tirx.AllocBuffer, size))
    return sum(sizes)
