"""Reader of LLVM's assembly of 64-bit ARM."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..assembly import Jumps
from ..instructions import Access, AssemblyReader, Effect, Instruction

_BRANCHES = Jumps(re.compile(r"ret|b(r|\.\w+)?$|cbn?z$|tbn?z$"), frozenset({"ret", "b", "br"}))

# Multiply-adds of f32, scalar and vector ones, and of bf16.
_ADDS_TO_FIRST = ("fmla", "fmls", "bfdot", "bfmmla")
_ADDS_TO_LAST = ("fmadd", "fmsub", "fnmadd", "fnmsub")
# A vector register by any of its names: v0.4s, v0.s[1], q0, d0, s0.
_VECTOR = re.compile(r"[vqdsh](\d+)\b")
_OPERAND = re.compile(r"(?:[^,\[{]|\[[^\]]*\]!?|\{[^}]*\})+")
# An operand in memory: [base], [base, #offset], [base, index, ...]; a #number after it post-increments the base.
_MEMORY = re.compile(r"\[(\w+)(?:, ([^\]]+))?\]")
_ADDRESSED = ("ld", "st")
# Bytes of vector registers: the distance in memory between those of a pair.
_BYTES = {"q": 16, "d": 8, "s": 4, "h": 2}


def _read(line: str) -> Instruction:
    mnemonic, _, text = line.strip().partition("\t")
    operands = [operand.strip() for operand in _OPERAND.findall(text)]
    matches = [_MEMORY.fullmatch(operand.rstrip("!")) for operand in operands]
    for number, memory in enumerate(matches):
        if memory is not None and mnemonic.startswith(_ADDRESSED):
            return _access(mnemonic, operands[:number], memory)
    if mnemonic in (*_ADDS_TO_FIRST, *_ADDS_TO_LAST):
        places = [_vector(operand) for operand in operands]
        added_to = places[-1 if mnemonic in _ADDS_TO_LAST else 0]
        return Instruction(1, tuple(Effect(place, True, added_to) for place in places[:1] if place))
    written = _vector(operands[0]) if operands else None
    if written is None:
        return Instruction()
    if mnemonic == "fmul":  # the first product of a sum
        return Instruction(1, (Effect(written),))
    whole = mnemonic in ("mov", "fmov") and "[" not in text
    return Instruction(effects=(Effect(written, source=_vector(operands[-1]) if whole else None),))


def _access(mnemonic: str, registers: Iterable[str], memory: re.Match[str]) -> Instruction:
    """Return the instruction of a load or a store of registers."""
    names = [name for operand in registers for name in re.findall(r"\b[vqdshwx]\d+\b", operand)]
    vectors = [name for name in names if name[0] not in "wx"]
    is_store, offset = mnemonic.startswith("st"), memory[2] or "#0"
    is_fixed = offset.startswith("#")
    access = Access(is_store, memory[1], is_fixed, bool(vectors))
    # Loads of lanes and structures change the order of elements.
    whole = mnemonic.startswith(("ldr", "ldu", "ldp", "str", "stu", "stp"))
    on_stack = is_fixed and memory[1] in ("sp", "x29") and whole
    effects = []
    for number, name in enumerate(vectors):
        register = _vector(name)
        assert register is not None
        place = f"{memory[1]}+{int(offset[1:], 0) + number * _BYTES.get(name[0], 0)}" if on_stack else None
        if not is_store:
            effects.append(Effect(register, source=place))
        elif place is not None:
            effects.append(Effect(place, source=register))
    return Instruction(0, tuple(effects), (access,))


def _vector(operand: str) -> str | None:
    """Return the vector register of an operand; None if it has none."""
    found = _VECTOR.match(operand)
    return f"v{found[1]}" if found else None


def _frame(lines: Iterable[str]) -> frozenset[str]:
    """Return the stack pointer, and the frame pointer if it is set from the stack pointer."""
    copied = re.compile(r"(mov\tx29, sp|add\tx29, sp, )")
    return frozenset({"sp", *(["x29"] if any(copied.match(line.strip()) for line in lines) else [])})


READER = AssemblyReader(_read, _frame, _BRANCHES)
