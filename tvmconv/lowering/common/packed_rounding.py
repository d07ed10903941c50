"""Vectors that are rounded to 8 bits one after the other, narrowed together by packing instructions.

A packing instruction narrows two vectors, each 128 bits by themselves: three of them make one vector of bytes of four vectors, which a
permutation then orders; narrowed one by one, each vector takes several instructions. Packing saturates, which bounds the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import sym, tirx
from tvm.ir import Call

from ...algorithms.epilogue import step_of
from ...epilogue import QUANTIZERS, Step
from ...isa.isa import Isa
from .step_arithmetic import Vector

# Vectors that are packed together; bits that an instruction packs by themselves; bits of an integer.
TOGETHER, _PART, _INTEGER = 4, 128, 32
_PACKS = {"uint8": "packuswb", "int8": "packsswb"}


@dataclass(frozen=True)
class Rounding:
    """A store of a vector that is rounded to 8 bits."""

    store: Any
    call: Call
    step: Step

    @property
    def lanes(self) -> int:
        """Lanes of the vector."""
        return int(self.call.ty.dtype.lanes)

    @property
    def dtype(self) -> str:
        """Type of a lane that is stored."""
        return str(self.store.value.ty.dtype).partition("x")[0]

    def is_like(self, other: Rounding) -> bool:
        """Return whether both are rounded alike, to the same array."""
        alike = (self.step, self.dtype, self.lanes) == (other.step, other.dtype, other.lanes)
        return alike and self.store.buffer.same_as(other.store.buffer)


def rounding_of(statement: Any) -> Rounding | None:
    """Return the store that a statement is, if it rounds a vector to 8 bits."""
    value = statement.value if isinstance(statement, tirx.BufferStore) else None
    if not isinstance(value, tirx.Cast) or not isinstance(value.value, Call) or (step := step_of(value.value)) is None:
        return None
    found = Rounding(statement, value.value, step)
    contiguous = isinstance(statement.indices[-1], tirx.Ramp) and int(statement.indices[-1].stride) == 1
    return found if step.name in QUANTIZERS and found.dtype in _PACKS and contiguous else None


def packing_of(isa: Isa | None, target: Any) -> tuple[int, str] | None:
    """Return the bits of a target's vectors and the name of LLVM's intrinsics that pack these; None: it has none."""
    widths = sorted(isa.packs, reverse=True) if isa is not None else []
    has = tvm.target.codegen.target_has_features
    return next(((bits, isa.packs[bits]) for bits in widths if isa and has(isa.pairs[bits], target)), None)


def groups_of(statements: Sequence[Any], bits: int) -> list[list[Any]]:
    """Return statements in order: in one group those that are packed together, each other in a group of its own."""
    groups, run = list[list[Any]](), list[Rounding]()
    for each in statements:
        found = rounding_of(each)
        fits = found is not None and found.lanes * _INTEGER in (bits, 2 * bits)
        if run and not (found is not None and fits and run[0].is_like(found)):
            groups += [[single.store] for single in run]
            run = []
        if found is None or not fits:
            groups.append([each])
            continue
        run.append(found)
        if len(run) * found.lanes * _INTEGER == TOGETHER * bits:
            groups.append([single.store for single in run])
            run = []
    return groups + [[single.store] for single in run]


def pack(
    group: Sequence[Any],
    bits: int,
    intrinsic: str,
    statements: list[Any],
    whole: Callable[[Rounding, list[Any]], Any],
) -> list[Any]:
    """Return the stores of a group, packed; `whole` rounds a vector to whole numbers, and adds statements before it to `statements`."""
    roundings = [found for each in group if (found := rounding_of(each)) is not None]
    first, lanes = roundings[0], bits // _INTEGER
    vectors = [
        _take([vector], range(at, at + lanes)) if each.lanes > lanes else vector
        for each in roundings
        for vector in (whole(each, statements),)
        for at in range(0, each.lanes, lanes)
    ]
    zero = int(first.step.numbers[1]) * ("before" not in first.step.name)
    halves = []
    for at in range(0, TOGETHER, 2):
        half = _call(f"int16x{2 * lanes}", intrinsic.format("packssdw"), *vectors[at : at + 2])
        if zero:
            half = _call(f"int16x{2 * lanes}", "llvm.sadd.sat", half, tirx.const(zero, f"int16x{2 * lanes}"))
        halves.append(half)
    packed = _call(f"{first.dtype}x{TOGETHER * lanes}", intrinsic.format(_PACKS[first.dtype]), *halves)
    register = tirx.decl_buffer((TOGETHER * lanes,), first.dtype, "packed", scope="local")
    everything = [tirx.Ramp(0, 1, TOGETHER * lanes)]
    statements += [tirx.AllocBuffer(register), tirx.BufferStore(register, packed, everything)]
    order, at, stores = order_of(lanes), 0, []
    for run in _runs(roundings):
        count = sum(each.lanes for each in run)
        value = _take([tirx.BufferLoad(register, everything)], order[at : at + count])
        *outer, last = run[0].store.indices
        stores.append(tirx.BufferStore(first.store.buffer, value, [*outer, tirx.Ramp(last.base, 1, count)]))
        at += count
    return stores


def order_of(lanes: int) -> list[int]:
    """Return which bytes of a packed vector are the lanes of the first vector, then of the next."""
    part = _PART // _INTEGER
    return [
        lane // part * part * TOGETHER + vector * part + lane % part
        for vector in range(TOGETHER)
        for lane in range(lanes)
    ]


def _runs(roundings: Sequence[Rounding]) -> list[list[Rounding]]:
    """Return stores in contiguous runs of one, two or all."""
    analyzer = sym.Analyzer()

    def follows(one: Rounding, other: Rounding) -> bool:
        apart = analyzer.simplify(other.store.indices[-1].base - one.store.indices[-1].base)
        return isinstance(apart, tirx.IntImm) and int(apart) == one.lanes

    runs: list[list[Rounding]] = []
    for each in roundings:
        if runs and follows(runs[-1][-1], each):
            runs[-1].append(each)
        else:
            runs.append([each])
    return [part for run in runs for part in ([run[:2], run[2:]] if len(run) == 3 else [run])]


def _call(dtype: str, name: str, *args: Any) -> Any:
    return tirx.call_llvm_pure_intrin(dtype, name, *args)


def _take(vectors: list[Any], lanes: Sequence[int]) -> Any:
    return tirx.Shuffle(vectors, [tirx.const(lane, "int32") for lane in lanes])


def whole_numbers(call: Call, x: Any, statements: list[Any], fused: bool) -> Any:
    """Return what a step rounds a vector to, before its zero point and bounds, as a register."""
    step = step_of(call)
    assert step is not None
    return Vector(x, statements, fused, saturates=True).whole(step, *call.args[len(step.numbers) + 1 :])
