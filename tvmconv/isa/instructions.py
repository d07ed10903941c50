"""Describe the effect of a line of machine code on loops of multiply-adds, for any instruction set."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .assembly import Jumps


@dataclass(frozen=True)
class Effect:
    """Effect of an instruction on a place: a vector register, or a place on the stack.

    Attributes
    ----------
    place
        The place that is written.
    adds
        Whether a multiply-add writes it.
    source
        What it adds to, or is moved from; None: neither, or no place.
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
        The register that its address begins with, "" if there is none.
    is_fixed
        Whether no other register is added.
    is_vector
        Whether vectors are moved.
    """

    is_store: bool
    base: str
    is_fixed: bool
    is_vector: bool


@dataclass(frozen=True)
class Instruction:
    """An instruction: how many multiply-adds it is, what it writes, and its accesses to memory."""

    multiply_adds: int = 0
    effects: tuple[Effect, ...] = ()
    accesses: tuple[Access, ...] = ()


@dataclass(frozen=True)
class AssemblyReader:
    """Syntax in which LLVM writes the machine code of an instruction set.

    Attributes
    ----------
    read
        Returns what a line does; of a label nothing.
    frame
        Returns the registers that hold the place of a function's frame, by its lines.
    branches
        How it jumps.
    """

    read: Callable[[str], Instruction]
    frame: Callable[[Iterable[str]], frozenset[str]]
    branches: Jumps

    def multiply_adds(self, lines: Iterable[str]) -> int:
        """Return the number of multiply-adds."""
        return sum(self.read(line).multiply_adds for line in lines)
