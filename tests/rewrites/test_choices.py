"""Choices that unrolling decides (tvmconv/lowering/cpu/rewrites/choices.py), before and after."""

from typing import Any

import pytest
from tvm import tirx

from tvmconv.lowering.common.rewrites import find_all
from tvmconv.lowering.cpu.rewrites.choices import chosen_once

A, B = tirx.Var("a", "int32"), tirx.Var("b", "int32")
BUFFER = tirx.decl_buffer((4,), "float32", "data")
ONE, TWO = (tirx.Broadcast(tirx.const(value, "float32"), 4) for value in (1.0, 2.0))


def condition_of(condition: Any) -> Any:
    """Return the condition of a choice in an unrolled loop over `a`, in one over `b` that is not."""
    store = tirx.BufferStore(BUFFER, tirx.Select(condition, ONE, TWO), [tirx.Ramp(0, 1, 4)])
    inner = tirx.For(A, 0, 2, tirx.ForKind.UNROLLED, store)
    (select,) = find_all(chosen_once(tirx.For(B, 0, 2, tirx.ForKind.SERIAL, inner)), tirx.Select)
    return select.condition


def test_a_choice_by_an_unrolled_variable_has_one_condition() -> None:
    assert str(condition_of(tirx.Broadcast(A == 1, 4))) == "a == 1"


@pytest.mark.parametrize("condition", [B == 1, tirx.And(A == 1, B == 1)], ids=["another", "both"])
def test_others_are_kept(condition: Any) -> None:
    """They are decided at run time: LLVM makes other code of one condition than of one for each lane."""
    assert isinstance(condition_of(tirx.Broadcast(condition, 4)), tirx.Broadcast)


def test_lanes_that_differ_are_kept() -> None:
    lanes = tirx.Ramp(A, 1, 4) < tirx.Broadcast(tirx.const(2, "int32"), 4)
    assert str(condition_of(lanes)) == str(lanes)
