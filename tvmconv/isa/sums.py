"""The sums of a loop of machine code: chains of multiply-adds, each of which adds to the result of the one before.

Sums are not registers: LLVM may move a sum from one register to another, or spill it.
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
        Place of the first instruction's summand at the start of an iteration; None: it is computed in the loop.
    length
        Number of multiply-adds.
    carried
        Whether the next iteration continues the sum.
    multiplies
        Whether one of the instructions multiplies, instead of only adding another's product.
    """

    start: str | None
    length: int = 0
    carried: bool = False
    multiplies: bool = False


def sums(instructions: Iterable[Instruction]) -> list[RegisterSum]:
    """Return the sums of one iteration of a loop, without additions to registers that the loop never writes, which are addresses."""
    found: list[RegisterSum] = []
    # Contents of registers and stack slots: a sum, the content of a place at the start of the iteration, or None.
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
