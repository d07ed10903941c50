"""Constants of indices, added last (tvmconv/lowering/cpu/rewrites/offsets.py), before and after."""

from typing import Any

import pytest
from tvm import tirx
from tvm.ir import TensorLoad

from tvmconv.lowering.common.rewrites import find_all
from tvmconv.lowering.cpu.rewrites.offsets import constants_last

A, B = tirx.Var("a", "int32"), tirx.Var("b", "int32")
BUFFER = tirx.decl_buffer((64,), "float32", "data")


def index_of(index: Any) -> str:
    """Return what becomes of the index of a load, as text."""
    (load,) = find_all(constants_last(tirx.Evaluate(tirx.BufferLoad(BUFFER, [index]))), TensorLoad)
    return str(load.indices[0])


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (A + 8 - B, "a - b + 8"),
        (A - (B - 8), "a - b + 8"),
        (3 - (B - A), "a - b + 3"),
        (A + 8 - B * 2 - 9, "a - b * 2 + -1"),
        (tirx.Ramp(A + 8 - B, 1, 4), "T.Ramp(a - b + 8, 1, 4)"),
    ],
)
def test_a_constant_is_added_last(index: Any, expected: str) -> None:
    assert index_of(index) == expected


@pytest.mark.parametrize("index", [A + 8 + B, A - B, 8 - B, A + 8 - B - 8, (A + 8 - B) // 2])
def test_others_are_kept(index: Any) -> None:
    """Nothing is subtracted, or there is no constant, or nothing to add it to, or the sum is divided."""
    assert index_of(index) == str(index)


def test_stores_too() -> None:
    stored = constants_last(tirx.BufferStore(BUFFER, tirx.const(0, "float32"), [A + 8 - B]))
    assert str(stored.indices[0]) == "a - b + 8"
