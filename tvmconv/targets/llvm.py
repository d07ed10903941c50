"""LLVM's CPUs and their features, as TVM knows them."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..isa import Isa, native


def describe_cpu(mcpu: str, isa: Isa) -> dict[str, Any]:
    """Return TVM's description of an LLVM CPU; this machine's instruction set needs no triple."""
    if mcpu in isa.models:
        named: dict[str, Any] = {"mcpu": "generic", "mattr": [f"+{feature}" for feature in isa.models[mcpu]]}
    else:
        named = {"mcpu": mcpu}
    return {"kind": "llvm", **named} | ({} if isa is native() else {"mtriple": isa.triple})


@cache
def list_cpus(isa: Isa) -> frozenset[str]:
    """Return the names of an instruction set's CPUs."""
    import tvm
    from tvm.target import codegen

    if isa.models:
        return frozenset(isa.models)
    of = {"kind": "llvm"} | ({} if isa is native() else {"mtriple": isa.triple})
    return isa.aliases | {str(cpu) for cpu in codegen.llvm_get_cpu_archlist(tvm.target.Target(of))}


@cache
def list_features(mcpu: str, isa: Isa, without: tuple[str, ...] = ()) -> frozenset[str]:
    """Return LLVM's names of the features of a CPU without some."""
    import tvm
    from tvm.target import codegen

    cpu = describe_cpu(mcpu, isa)
    cpu["mattr"] = [*cpu.get("mattr", ()), *(f"-{feature}" for feature in without)]
    return frozenset(map(str, codegen.llvm_get_cpu_features(tvm.target.Target(cpu))))
