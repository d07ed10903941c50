"""Lower a scheduled function by the passes of `LOWERING`, in order, to functions that `tvm.compile` takes."""

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
        Functions SYMBOL and, if the kernel packs its filter, PACK_SYMBOL and PACKED_SYMBOL.
    layout
        Layout that PACK_SYMBOL writes; None: the filter is read in place.
    """

    module: tvm.IRModule
    layout: Layout | None


def lower(
    mod: tvm.IRModule,
    definition: Definition,
    entry_points: EntryPoints = EntryPoints.BOTH,
    last: str = LOWERING[-1].name,
) -> Lowered:
    """Return a scheduled module lowered by all passes up to `last`.

    Without ``PLAIN`` among the entry points, it has no SYMBOL beside PACKED_SYMBOL.
    """
    kernel = PassKernel(mod, definition, entry_points, requests(mod["main"]))
    for each in LOWERING:
        kernel = each(kernel)
        if each.name == last:
            break
    return Lowered(kernel.module, kernel.halves.layout if kernel.halves else None)


def workspace_bytes(module: tvm.IRModule) -> int:
    """Return the bytes of a lowered kernel's intermediate arrays for one thread, without registers and tiles on the stack."""
    sizes = []

    def size(node: tirx.AllocBuffer) -> tirx.AllocBuffer:
        if node.buffer.scope() != "local":
            sizes.append(nbytes(node.buffer))
        return node

    for function in module.functions.values():
        structural_map(function, (tirx.AllocBuffer, size))
    return sum(sizes)
