"""Reader of LLVM's WebAssembly. Its loops are nested blocks without labels to jump to, so no hot loop is found."""

from __future__ import annotations

import re

from ..assembly import Jumps
from ..instructions import AssemblyReader, Instruction

# Instructions that are counted as multiply-adds: without relaxed SIMD the product, not its addition.
_MULTIPLY_ADDS = ("f32x4.mul", "f32x4.relaxed_madd", "f32x4.relaxed_nmadd")
_BRANCHES = Jumps(re.compile(r"br(_if|_table)?$|return$"), frozenset({"br", "return"}))


def _read(line: str) -> Instruction:
    return Instruction(int(line.strip().partition("\t")[0] in _MULTIPLY_ADDS))


READER = AssemblyReader(_read, lambda lines: frozenset(), _BRANCHES)
