"""Compile kernels for CPUs: a `tvmconv.lowering.code_generator.CodeGenerator`."""

from __future__ import annotations

from ...support.toolchain import find_compiler
from ...targets.target import CpuTarget
from .kernels import module, write
from .passes import PASSES
from .stages import show

__all__ = ["check_tools", "in_parts", "module", "passes", "show", "stages", "write"]

stages = ("passes", "tir", "llvm", "asm")
passes = tuple(each.name for each in PASSES)
in_parts = True


def check_tools(target: CpuTarget) -> None:
    """Check that there is a C compiler for the target's instruction set, for linking."""
    find_compiler(target.isa)
