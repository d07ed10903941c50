"""Effects of single assembly lines on loops of multiply-adds, for any instruction set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .assembly import Jumps


@dataclass(frozen=True)
class Effect:
    """Effect of an instruction on a place: a vector register or a stack slot.

    Attributes
    ----------
    place
        The place that is written.
    adds
        Whether a multiply-add writes it.
    source
        The place that is added to, or moved from; None: neither, or memory.
    """

    place: str
    adds: bool = False
    source: str | None = None


@dataclass(frozen=True)
class Access:
    """An access to memory.

    Attributes
    ----------
    is_store
        Whether it writes.
    base
        The base register of its address, "" if there is none.
    is_fixed
        Whether the address has no index register.
    is_vector
        Whether it moves vectors.
    """

    is_store: bool
    base: str
    is_fixed: bool
    is_vector: bool


@dataclass(frozen=True)
class Instruction:
    """An instruction: its number of multiply-adds, its writes, and its memory accesses."""

    multiply_adds: int = 0
    effects: tuple[Effect, ...] = ()
    accesses: tuple[Access, ...] = ()


@dataclass(frozen=True)
class AssemblyReader:
    """Reader of LLVM's assembly of an instruction set.

    Attributes
    ----------
    read
        Returns the instruction of a line; an empty one for a label.
    frame
        Returns the stack and frame pointers that a function's lines use.
    branches
        The jumps of the instruction set.
    """

    read: Callable[[str], Instruction]
    frame: Callable[[Iterable[str]], frozenset[str]]
    branches: Jumps

    def multiply_adds(self, lines: Iterable[str]) -> int:
        """Return the number of multiply-adds."""
        return sum(self.read(line).multiply_adds for line in lines)
