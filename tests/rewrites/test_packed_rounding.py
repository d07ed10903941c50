"""Vectors that are rounded one after the other and packed: their order, and what is packed together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import tirx
from tvm.ir import Call, PrimType

from tvmconv.algorithms.epilogue import round_to_integer
from tvmconv.epilogue import Step
from tvmconv.lowering.common.packed_rounding import groups_of, order_of


def _pack(one: Any, other: Any) -> Any:
    """Return what a packing instruction makes of two vectors: of each 128 bits those of both."""
    parts = 16 // one.itemsize
    return np.concatenate([one.reshape(-1, parts), other.reshape(-1, parts)], 1).astype(f"i{one.itemsize // 2}").ravel()


@pytest.mark.parametrize("lanes", [8, 16])
def test_lanes_are_stored_in_their_order(lanes: int) -> None:
    vectors = np.arange(4 * lanes, dtype=np.int32).reshape(4, lanes)
    packed = _pack(_pack(*vectors[:2]), _pack(*vectors[2:]))
    assert packed[order_of(lanes)].tolist() == vectors.ravel().tolist()


def _round(buffer: Any, at: int, zero_point: int) -> Any:
    value = tirx.Broadcast(tirx.const(1.0, "float32"), 16)
    call = round_to_integer(Step("q", (0.5, float(zero_point))), tirx.const(1.0, "float32"), "u8").value
    vector = Call(call.op, [value, *call.args[1:]], ret_ty=PrimType("int32x16"))
    return tirx.BufferStore(buffer, tirx.Cast("uint8x16", vector), [tirx.Ramp(at, 1, 16)])


def test_groups_are_of_one_array_and_zero_point() -> None:
    first, second = (tirx.decl_buffer((256,), "uint8", name) for name in "ab")
    stores = [_round(first, 16 * at, 3) for at in range(5)]
    others = [_round(second, 0, 3), *(_round(second, 16 * at, 4) for at in range(4))]
    assert [len(each) for each in groups_of([*stores, *others], 512)] == [4, 1, 1, 4]
