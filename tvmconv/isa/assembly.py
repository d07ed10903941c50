"""Functions and natural loops in LLVM's assembly.

Loops are found from labels and jumps: a back edge is a jump or fall-through to a block that dominates it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_LABEL = re.compile(r"([\w.$]+):")
_TYPE = re.compile(r"\s+\.type\s+([\w.$]+),@function")
# Directives, comments, blank lines, and labels for debuggers.
_NO_CODE = re.compile(r"\s+\.|\s*(#|//)|\s*$|\.L(tmp|func_)")


@dataclass(frozen=True)
class Jumps:
    """Jumps of an instruction set.

    Attributes
    ----------
    ends
        Matches the mnemonics that end a block.
    no_way_on
        Those of them that never fall through to the next block.
    """

    ends: re.Pattern[str]
    no_way_on: frozenset[str]


@dataclass
class _Block:
    """A basic block: its lines, and the numbers of its successors."""

    lines: list[str]
    next: list[int]


def functions_of(asm: str) -> dict[str, list[str]]:
    """Return the labels and instructions of each function, by its name."""
    functions: dict[str, list[str]] = {}
    name = ""
    body: list[str] = []
    for line in asm.splitlines():
        if start := _TYPE.match(line):
            name, body = start[1], []
        elif name and line.startswith(("\t.size", "\tend_function")):
            functions[name] = body
            name = ""
        elif name and not _NO_CODE.match(line):
            body.append(line)
    return functions


def innermost_loops(lines: list[str], work: Callable[[list[str]], int], branches: Jumps) -> list[list[str]]:
    """Return the loops of a function that do some `work`, except those that contain another such loop."""
    if not work(lines):
        return []
    blocks = _blocks(lines, branches)
    before: list[list[int]] = [[] for _ in blocks]
    for number, block in enumerate(blocks):
        for follower in block.next:
            before[follower].append(number)
    # The function's first block, and those reached by indirect jumps.
    entries = {number for number, earlier in enumerate(before) if number == 0 or not earlier}
    loops: dict[int, set[int]] = {}
    for last, block in enumerate(blocks):
        for header in block.next:
            body = _body(header, last, before)
            if not (entries - {header}) & body:  # else the header does not dominate the jump
                loops.setdefault(header, set()).update(body)
    busy = {header: body for header, body in loops.items() if any(work(blocks[number].lines) for number in body)}
    return [
        [line for number in sorted(body) for line in blocks[number].lines]
        for header, body in busy.items()
        if not any(other in body and other != header for other in busy)
    ]


def _body(header: int, last: int, before: list[list[int]]) -> set[int]:
    """Return `header` and the blocks from which `last` is reached without passing it."""
    body, waiting = {header}, [last]
    while waiting:
        number = waiting.pop()
        if number not in body:
            body.add(number)
            waiting += before[number]
    return body


def _blocks(lines: list[str], branches: Jumps) -> list[_Block]:
    """Return the basic blocks of a function in order."""
    pieces: list[list[str]] = [[]]
    for line in lines:
        if _LABEL.match(line) and pieces[-1]:
            pieces.append([])
        pieces[-1].append(line)
        if _jump(line, branches):
            pieces.append([])
    pieces = [piece for piece in pieces if piece]
    places = {label[1]: number for number, piece in enumerate(pieces) for label in map(_LABEL.match, piece) if label}
    blocks = []
    for number, piece in enumerate(pieces):
        mnemonic, target = _jump(piece[-1], branches) or ("", "")
        followers = [places[target]] if target in places else []
        if mnemonic not in branches.no_way_on and number + 1 < len(pieces):
            followers.append(number + 1)
        blocks.append(_Block(piece, followers))
    return blocks


def _jump(line: str, branches: Jumps) -> tuple[str, str] | None:
    """Return the mnemonic and the last operand of a line that ends a block, else None."""
    mnemonic, _, operands = line.strip().partition("\t")
    return (mnemonic, operands.rpartition(",")[2].strip()) if branches.ends.match(mnemonic) else None
