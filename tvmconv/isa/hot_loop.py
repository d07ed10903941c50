"""The hot loop of a kernel's machine code as text: the innermost loop that sums most.

Of loops with multiply-adds the innermost count, and of those first such whose sums go on in the next pass: the transforms
of Winograd's algorithm multiply and add too, and more than the sum between them does.
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
    """A loop of a kernel, and what its instructions are.

    Attributes
    ----------
    function
        The kernel's function that it is of: ``tvmconv_kernel`` or ``tvmconv_packed`` (the filter prepacked).
    lines
        Its labels and instructions, as they stand.
    multiply_adds, sums
        Multiply-adds, and the sums that they add to: the register tile.
    loads, stores
        Accesses to memory but those of spills.
    spill_stores, spill_loads
        Accesses to places on the stack that no index changes, which hold what registers do not. An array on the stack
        that is read at constant places looks the same.
    spilled_vectors
        Those of vectors: parts of sums or operands. The others compute addresses.
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
    """Return the hot loop of a module's machine code; None if no loop has a multiply-add."""
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
        # Of two with as many, the one that reads the prepacked filter: that is the measured one.
        name, lines = loop
        return (
            sum(each.length for each in sums(map(read, lines)) if each.carried),
            multiply_adds(lines),
            kernels[name] == "tvmconv_packed",
        )

    name, best = max(loops, key=heat)
    return _count(kernels[name], best, [read(line) for line in best], reader.frame(functions[name]))


def listing(asm: str, reader: AssemblyReader) -> str:
    """Return the hot loop with its counts, then the labels and instructions of all functions, the loop where it stands."""
    loop = hot_loop(asm, reader)
    code = [line for _, lines in functions_of(asm).items() for line in lines]
    none = "the loops of multiply-adds are not found" if reader.multiply_adds(code) else "no loop has a multiply-add"
    top = [f"# {loop}", *loop.lines] if loop else [f"# {none}"]
    return "\n".join([*top, "# all functions", *code])


def _kernel_of(name: str, functions: dict[str, list[str]]) -> str:
    """Return the kernel's function whose work a function does: the body of a parallel loop has a name of its own."""
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
