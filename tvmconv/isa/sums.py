"""The sums of a loop of machine code: chains of multiply-adds, each of which adds to what the one before gave.

A register is not a sum: LLVM may let a sum move from one to the next, or keep a part of them on the stack.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .instructions import Instruction


@dataclass
class RegisterSum:
    """A chain of multiply-adds.

    Attributes
    ----------
    start
        Location of the first instruction's summand before the loop; None: it is computed in the loop.
    length
        How many there are.
    carried
        Whether the next pass goes on with it.
    multiplies
        Whether one of them multiplies, instead of only adding another's product.
    """

    start: str | None
    length: int = 0
    carried: bool = False
    multiplies: bool = False


def sums(instructions: Iterable[Instruction]) -> list[RegisterSum]:
    """Return the sums of one pass through a loop; what an addition alone adds to a register that no pass writes is an address."""
    found: list[RegisterSum] = []
    # Contents of registers and places on the stack: a sum, their content before the pass (its place), or None.
    held: dict[str, RegisterSum | str | None] = {}
    for effect, multiplies in ((effect, each.multiply_adds > 0) for each in instructions for effect in each.effects):
        value = held.get(effect.source, effect.source) if effect.source else None
        if effect.adds:
            if not isinstance(value, RegisterSum):
                value = RegisterSum(value)
                found.append(value)
            value.length += 1
            value.multiplies |= multiplies
        held[effect.place] = value
    for each in found:
        each.carried = each.start is not None and held.get(each.start) is each
    return [each for each in found if each.start is None or each.start in held or each.multiplies]
