"""Kernels of many problems compiled into one library, each for filters as they are and prepacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import StringImm
from tvm_ffi.structural import structural_map

from tvmconv.lowering.common.entry_points import SYMBOL, EntryPoints
from tvmconv.lowering.compiler import Choice, schedule
from tvmconv.lowering.cpu.functions import functions_of
from tvmconv.lowering.cpu.linker import link
from tvmconv.lowering.cpu.lowering import Lowered, lower
from tvmconv.lowering.cpu.passes import PIPELINE
from tvmconv.lowering.cpu.rewrites.tasks import cuts
from tvmconv.problem import Problem
from tvmconv.runtime.packed import PACK_SYMBOL, PACKED_SYMBOL
from tvmconv.targets.target import CpuTarget

LEAST_STORES = 64  # of a piece: calls of many threads cut tasks of small problems, too


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel.

    Attributes
    ----------
    path, ending
        Its library, and what the names of its functions end in.
    plain, packed
        Whether it takes the filter as it is; elements and type of the prepacked one, if it takes that.
    """

    path: str
    ending: str
    plain: bool
    packed: tuple[int, str] | None


def lowered(problem: Problem, target: CpuTarget, choice: Choice, entry_points: EntryPoints) -> Lowered:
    """Return the functions of a kernel's library, for plain filters, or for prepacked ones if these differ."""
    definition, scheduled = schedule(problem, target, choice, entry_points)
    as_shipped, cuts.LEAST_STORES = cuts.LEAST_STORES, LEAST_STORES
    try:
        return lower(scheduled.mod, definition)
    finally:
        cuts.LEAST_STORES = as_shipped


def compile_all(
    kernels: Sequence[Lowered], target: CpuTarget, path: str, quick: bool, keep_zeros: bool = False
) -> list[Kernel | Exception]:
    """Compile kernels into the library `path`; return each, or why there is none.

    `quick` leaves out LLVM's optimizations, which take most of the time, but not what this project does; reproducible kernels `keep_zeros`.
    """
    results: list[Kernel | Exception] = []
    functions: dict[str, tirx.PrimFunc] = {}
    for number, each in enumerate(kernels):
        renamed = _renamed(each, f"_{number}")
        functions.update(renamed)
        packed = (each.layout.elements, each.layout.dtype) if each.layout else None
        results.append(Kernel(path, f"_{number}", f"{SYMBOL}_{number}" in renamed, packed))
    if not functions:
        return results
    try:
        with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
            link(
                tvm.compile(tvm.IRModule(functions), _llvm(target, quick, keep_zeros), tir_pipeline=PIPELINE),
                path,
                isa=target.isa,
            )
    except Exception as error:  # noqa: BLE001 (whatever it is, it is some kernel's failure)
        if len(kernels) == 1:
            return [error]
        alone = enumerate(kernels)
        return [
            result for n, each in alone for result in compile_all([each], target, f"{path}.{n}.so", quick, keep_zeros)
        ]
    return results


def _llvm(target: CpuTarget, quick: bool, keep_zeros: bool) -> Any:
    full = target.tvm(keep_zeros)
    return tvm.target.Target({**full.export(), "opt-level": 0}) if quick else full


def _renamed(each: Lowered, ending: str) -> dict[str, tirx.PrimFunc]:
    """Return a kernel's functions under other names, which they also call each other by."""

    def called(name: StringImm) -> StringImm:
        return StringImm(name.value + ending) if name.value in (PACK_SYMBOL, PACKED_SYMBOL) else name

    functions = functions_of(each.module)
    if SYMBOL in functions and PACK_SYMBOL in functions:
        plain = functions[SYMBOL]
        functions[SYMBOL] = plain.with_body(structural_map(plain.body, (StringImm, called)))
    return {name + ending: function.with_attr("global_symbol", name + ending) for name, function in functions.items()}
