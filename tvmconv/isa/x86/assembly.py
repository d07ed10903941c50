"""Reader of LLVM's assembly of x86, in AT&T syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..assembly import Jumps
from ..instructions import Access, AssemblyReader, Effect, Instruction

_BRANCHES = Jumps(re.compile(r"j\w+$|ret|ud2"), frozenset({"jmp", "ret", "retq", "ud2"}))

# Multiply-adds: of f32, scalar and vector ones; of pairs of bf16, and pairs and quads of integers, by vectors and AMX's tiles. The last
# digit of 132, 213 and 231 is the operand that is added to; AT&T syntax reverses operands: 1 is the last one, 3 the first.
_MULTIPLY_ADD = re.compile(r"(?:vfn?m(?:add|sub)(132|213|231)[ps]s|[vt]dpbf16ps|(?:vp|t)dpb[su][su]d|vpdpwssd)$")
# Products of pairs of integers, and the instruction that adds these to a sum.
_MULTIPLY, _ADD = "vpmaddwd", "vpaddd"
_PREFIX = re.compile(r"\{vex\}\s*")
_ADDED_TO = {"132": -2, "213": -3, "231": -1, None: -1}
_MOVE = re.compile(r"vmov[au]p[sd]|vmovdq[au]\d*")
_OPERAND = re.compile(r"(?:[^,(]|\([^)]*\))+")
_VECTOR = re.compile(r"%[txyz]mm(\d+)")
_SPILLED = re.compile(r"-?\d*\(%r[sb][px]\)")
_MASK = re.compile(r"\s*\{%k\d\}$")
# An operand in memory: displacement(base, index, scale), the base in a group of its own.
_MEMORY = re.compile(r"[-\w.$+]*\((%\w+)?(,[^)]*)?\)")
_NO_ACCESS = ("lea", "prefetch", "nop", "j", "call")
# Instructions that only read a last operand in memory; and those that read it before they write it.
_COMPARES = ("cmp", "test", "bt", "push")
_READS_FIRST = re.compile(r"(add|sub|adc|sbb|inc|dec|neg|not|and|or|xor|sh[lr]|sa[lr]|ro[lr]|xchg|xadd)[bwlq]?$")


def _read(line: str) -> Instruction:
    mnemonic, _, operands = _PREFIX.sub("", line.strip()).replace(" ", "\t", 1).partition("\t")
    match = _MULTIPLY_ADD.match(mnemonic)
    return Instruction(
        int(match is not None or mnemonic == _MULTIPLY),
        _effects(mnemonic, operands, match),
        _accesses(mnemonic, operands),
    )


def _effects(mnemonic: str, operands: str, match: re.Match[str] | None) -> tuple[Effect, ...]:
    places = [_place(operand) for operand in _OPERAND.findall(operands)]
    if not places or (target := places[-1]) is None:
        return ()
    if match is not None:
        return (Effect(target, True, places[_ADDED_TO[match[1] if match.lastindex else None]]),)
    if mnemonic == _ADD:
        return (Effect(target, True, places[-2]),)
    return (Effect(target, source=places[0] if _MOVE.match(mnemonic) else None),)


def _place(operand: str) -> str | None:
    """Return the number of an operand's vector register, or its stack slot; None for other operands."""
    if vector := _VECTOR.search(operand):
        return vector[1]
    spilled = _SPILLED.search(operand)
    return spilled[0] if spilled else None


def _accesses(mnemonic: str, operands: str) -> tuple[Access, ...]:
    memory = _MEMORY.search(operands)
    if memory is None or mnemonic.startswith(_NO_ACCESS):
        return ()
    last = _MASK.sub("", operands).endswith(memory[0]) and not mnemonic.startswith(_COMPARES)
    stores = [True] * last + [False] * (not last or _READS_FIRST.match(mnemonic) is not None)
    return tuple(Access(store, memory[1] or "", memory[2] is None, "mm" in operands) for store in stores)


def _frame(lines: Iterable[str]) -> frozenset[str]:
    """Return rsp, and rbp and rbx if rsp is copied to them."""
    copied = {"%rbp", "%rbx"} & {line.split()[-1] for line in lines if line.strip().startswith("movq\t%rsp, ")}
    return frozenset({"%rsp", *copied})


READER = AssemblyReader(_read, _frame, _BRANCHES)
