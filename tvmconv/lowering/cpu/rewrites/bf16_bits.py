"""Broadcasts of bf16 as 16-bit integers: TVM (0.27) cannot legalize their stores."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call

from ...common.rewrites import map_nodes

_HALF, _BITS = "bfloat16", "uint16"


def broadcast_bits() -> tvm.transform.Pass:
    """Return the pass that broadcasts bf16 as integers, and reinterprets the vector."""

    def of_bits(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        return func.with_body(map_nodes(func.body, tirx.Broadcast, _of_bits))

    return tirx.transform.prim_func_pass(of_bits, opt_level=0, name="BroadcastBits")


def _of_bits(broadcast: Any) -> Any:
    value = broadcast.value
    if str(value.ty.dtype) != _HALF:
        return broadcast
    made = isinstance(value, Call) and value.op.same_as(_REINTERPRET) and str(value.args[0].ty.dtype) == _BITS
    bits = value.args[0] if made else tirx.reinterpret(_BITS, value)
    return tirx.reinterpret(str(broadcast.ty.dtype), tirx.Broadcast(bits, broadcast.lanes))


_REINTERPRET = tvm.ir.Op.get("tirx.reinterpret")
