"""Rounding to bf16 by the CPU's own instruction, a vector at a time.

TVM's code generation has no bf16 and does not vectorize calls of functions it does not know. A loop over lanes that
stores rounded sums becomes one that keeps the sums in a vector and one store of what `ROUND` makes of it, which
schedules/x86_dot.py defines in LLVM. Where stores are not by vectors, rounding is by integer arithmetic.
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm.ir import Call
from tvm_ffi.structural import structural_map

from .definitions.pairs import ROUND
from .definitions.types import narrow


def round_vectors(body: Any) -> Any:
    """Return the statement with calls of ROUND made vectors', or integer arithmetic."""
    body = structural_map(body, (tirx.For, _by_vector))
    return structural_map(body, (Call, lambda call: narrow(call.args[1], "bf16") if _rounds(call) else call))


def _rounds(value: Any) -> bool:
    return isinstance(value, Call) and len(value.args) == 2 and str(value.args[0]).strip('"') == ROUND


def _by_vector(loop: Any) -> Any:
    store, lane = loop.body, loop.loop_var
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(store, tirx.BufferStore) or not _rounds(store.value):
        return loop
    lanes, index = int(loop.extent), store.indices[-1]
    first = structural_map(index, (tirx.Var, lambda var: tirx.const(0, "int32") if var.same_as(lane) else var))
    if len(store.indices) != 1 or not sym.Analyzer().can_prove_equal(index, first + lane):
        return loop
    sums = tirx.decl_buffer((lanes,), "float32", "sums", scope="local")
    keep = tirx.For(lane, loop.min, loop.extent, loop.kind, tirx.BufferStore(sums, store.value.args[1], [lane]))
    vector = tirx.BufferLoad(sums, [tirx.Ramp(0, 1, lanes)])
    rounded = tirx.call_pure_extern(f"uint16x{lanes}", f"{ROUND}_{lanes}", vector)
    whole = tirx.BufferStore(store.buffer, rounded, [tirx.Ramp(first, 1, lanes)])
    return tirx.SeqStmt([tirx.AllocBuffer(sums), keep, whole])
