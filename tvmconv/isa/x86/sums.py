"""The sums of a loop of machine code: chains of multiply-adds, each of which adds to what the one before gave.

A register is not a sum: LLVM may let a sum move from one to the next, or keep a part of them on the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Of f32, scalar or by vectors, and of pairs of bf16 by vectors and by AMX's tiles. The digits say which operand, as AT&T
# writes them backwards, is added to: 1 in 231 is the last one, 3 in 213 the first, 2 in 132 the one between.
_MULTIPLY_ADD = re.compile(r"(?:vfn?m(?:add|sub)(132|213|231)[ps]s|vdpbf16ps|tdpbf16ps)$")
_ADDED_TO = {"132": -2, "213": -3, "231": -1, None: -1}
_MOVE = re.compile(r"vmov[au]p[sd]|vmovdq[au]\d*")
_OPERAND = re.compile(r"(?:[^,(]|\([^)]*\))+")
_VECTOR = re.compile(r"%[txyz]mm(\d+)")
_SPILLED = re.compile(r"-?\d*\(%r[sb][px]\)")


@dataclass
class Sum:
    """A chain of multiply-adds.

    Attributes
    ----------
    start
        Where what its first one adds to lies before the loop's first instruction; None: it is made in the loop.
    length
        How many there are.
    carried
        Whether the next pass goes on with it.
    """

    start: str | None
    length: int = 0
    carried: bool = False


def multiply_adds(lines: Iterable[str]) -> int:
    """Return the number of multiply-adds."""
    return sum(_MULTIPLY_ADD.match(line.split()[0]) is not None for line in lines)


def sums(lines: Iterable[str]) -> list[Sum]:
    """Return the sums of one pass through a loop."""
    found: list[Sum] = []
    # What registers and places on the stack hold: a sum, what they held before the pass (its place), or else None.
    held: dict[str, Sum | str | None] = {}
    for line in lines:
        mnemonic, _, text = line.strip().partition("\t")
        places = [_place(operand) for operand in _OPERAND.findall(text)]
        if not places or (target := places[-1]) is None:
            continue
        if match := _MULTIPLY_ADD.match(mnemonic):
            added_to = places[_ADDED_TO[match[1] if match.lastindex else None]]
            value = held.get(added_to, added_to) if added_to else None
            if not isinstance(value, Sum):
                value = Sum(value)
                found.append(value)
            value.length += 1
            held[target] = value
        elif _MOVE.match(mnemonic) and places[0]:
            held[target] = held.get(places[0], places[0])
        else:
            held[target] = None
    for each in found:
        each.carried = each.start is not None and held.get(each.start) is each
    return found


def _place(operand: str) -> str | None:
    """Return the vector register, by its number, or the place on the stack that an operand is; None for all others."""
    if vector := _VECTOR.search(operand):
        return vector[1]
    spilled = _SPILLED.search(operand)
    return spilled[0] if spilled else None
