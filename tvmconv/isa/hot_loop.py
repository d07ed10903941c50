"""The hot loop of a kernel's assembly: the innermost loop with the most multiply-adds into loop-carried sums.

Loop-carried sums decide before the number of multiply-adds: Winograd's transforms have more of these than the products between
them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from .assembly import functions_of, innermost_loops
from .instructions import AssemblyReader, Instruction
from .sums import sums

_KERNEL = re.compile(r"\b(tvmconv_(?:kernel|packed|pack))_compute_")


@dataclass(frozen=True)
class HotLoop:
    """A loop of a kernel, and counts of its instructions.

    Attributes
    ----------
    function
        The kernel's function that contains the loop: ``tvmconv_kernel`` or ``tvmconv_packed`` (the filter prepacked).
    lines
        Its labels and instructions, unchanged.
    multiply_adds, sums
        Multiply-adds, and the sums that they accumulate: the register tile.
    loads, stores
        Memory accesses except spills.
    spill_stores, spill_loads
        Accesses to stack slots at constant offsets. Arrays on the stack that are read at constant indices are counted too.
    spilled_vectors
        Those of vectors: parts of sums or operands. The others are of addresses.
    """

    function: str
    lines: tuple[str, ...]
    multiply_adds: int
    sums: int
    loads: int
    stores: int
    spill_stores: int
    spill_loads: int
    spilled_vectors: int

    def __str__(self) -> str:
        spilled = f" ({self.spilled_vectors} of vectors)" if self.spill_stores + self.spill_loads else ""
        return (
            f"hot loop of {self.function}: {self.multiply_adds} multiply-adds into {self.sums} sums, "
            f"{self.loads} loads, {self.stores} stores, "
            f"spills: {self.spill_stores} stores and {self.spill_loads} loads{spilled}"
        )


def hot_loop(asm: str, reader: AssemblyReader) -> HotLoop | None:
    """Return the hot loop of a module's assembly; None if no loop has a multiply-add."""
    read = cache(reader.read)  # once a line

    def multiply_adds(lines: Iterable[str]) -> int:
        return sum(read(line).multiply_adds for line in lines)

    functions = functions_of(asm)
    loops = [
        (name, loop)
        for name, lines in functions.items()
        for loop in innermost_loops(lines, multiply_adds, reader.branches)
    ]
    if not loops:
        return None
    kernels = {name: _kernel_of(name, functions) for name, _ in loops}

    def heat(loop: tuple[str, list[str]]) -> tuple[int, int, bool]:
        # Among equals, the one that reads the prepacked filter: that one is timed.
        name, lines = loop
        return (
            sum(each.length for each in sums(map(read, lines)) if each.carried),
            multiply_adds(lines),
            kernels[name] == "tvmconv_packed",
        )

    name, best = max(loops, key=heat)
    return _count(kernels[name], best, [read(line) for line in best], reader.frame(functions[name]))


def listing(asm: str, reader: AssemblyReader) -> str:
    """Return the hot loop with its counts, then the labels and instructions of all functions, the loop in place."""
    loop = hot_loop(asm, reader)
    code = [line for _, lines in functions_of(asm).items() for line in lines]
    none = "loops of multiply-adds were not found" if reader.multiply_adds(code) else "no loop has a multiply-add"
    top = [f"# {loop}", *loop.lines] if loop else [f"# {none}"]
    return "\n".join([*top, "# all functions", *code])


def _kernel_of(name: str, functions: dict[str, list[str]]) -> str:
    """Return the kernel's function that a function is part of: the body of a parallel loop is a function of another name."""
    while not (found := _KERNEL.match(name)):
        uses = (
            other for other, lines in functions.items() if other != name and any(_names(line, name) for line in lines)
        )
        name = next(uses, "")
        if not name:
            return "tvmconv_kernel"
    return found[1]


def _names(line: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", line) is not None


def _count(function: str, lines: list[str], instructions: list[Instruction], frame: frozenset[str]) -> HotLoop:
    accesses = [access for each in instructions for access in each.accesses]
    spills = [access.base in frame and access.is_fixed for access in accesses]
    counts = Counter((access.is_store, spill) for access, spill in zip(accesses, spills, strict=True))
    return HotLoop(
        function,
        tuple(lines),
        sum(each.multiply_adds for each in instructions),
        len(sums(instructions)),
        counts[False, False],
        counts[True, False],
        counts[True, True],
        counts[False, True],
        sum(access.is_vector and spill for access, spill in zip(accesses, spills, strict=True)),
    )
