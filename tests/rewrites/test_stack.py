"""Arrays on the stack (tvmconv/lowering/cpu/stack.py): chosen by their bytes, whatever their type."""

from __future__ import annotations

import pytest
import tvm
from tvm import tirx

from tvmconv.lowering.common.rewrites import find_all
from tvmconv.lowering.cpu.stack import ON_STACK, keep_on_stack

KIB = 1024


def stays(*arrays: tuple[int, str] | tuple[int, str, str]) -> list[bool]:
    """Return for arrays, each of so many elements of a type, whether they stay on the stack; ``"local"`` is the scope of some."""
    places = [
        tirx.decl_buffer((count,), dtype, f"array{i}", scope=scope[0] if scope else "global")
        for i, (count, dtype, *scope) in enumerate(arrays)
    ]
    body = tirx.SeqStmt([*(tirx.AllocBuffer(each) for each in places), tirx.Evaluate(0)])
    module = keep_on_stack()(tvm.IRModule({"main": tirx.PrimFunc([], body)}))
    return [ON_STACK in node.annotations for node in find_all(module["main"].body, tirx.AllocBuffer)]


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32", "float64", "uint32x16", "float32x8", "float32x16"])
def test_bytes_count_whatever_the_type(dtype: str) -> None:
    kind = tvm.DataType(dtype)
    most = (256 * KIB if kind.lanes > 1 else 16 * KIB) * 8 // (kind.bits * kind.lanes)
    assert stays((most, dtype)) == [True]
    assert stays((most + 1, dtype)) == [False]


def test_all_arrays_of_a_function_together() -> None:
    vectors = (4 * KIB, "float32x16")  # 256 KiB
    assert stays(vectors, vectors, vectors, (1, "float32")) == [True, True, False, False]
    assert stays((4 * KIB, "float32x16", "local"), (1, "float32"), vectors, (100, "float32")) == [
        True,
        True,
        False,
        True,
    ]


def test_what_is_local_stays() -> None:
    assert stays((64 * KIB, "float32", "local"), (64 * KIB, "float32x16", "local")) == [True, True]
