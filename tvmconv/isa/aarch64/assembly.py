"""The assembly of 64-bit ARM: how it jumps, and what multiplies and adds."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..assembly import Branches, functions_of

BRANCHES = Branches(re.compile(r"ret|b(r|\.\w+)?$|cbn?z$|tbn?z$"), frozenset({"ret", "b", "br"}))
_MULTIPLY_ADD = re.compile(r"\s*(?:fmla|bfdot)\s")


def multiply_adds(lines: Iterable[str]) -> int:
    """Return the number of multiply-adds and dot products of vectors."""
    return sum(_MULTIPLY_ADD.match(line) is not None for line in lines)


def listing(asm: str) -> str:
    """Return the labels and instructions of all functions; no reader counts what a loop of this has."""
    code = [line for lines in functions_of(asm).values() for line in lines]
    return "\n".join(["# what a hot loop has is not counted in code for aarch64", "# all functions", *code])
