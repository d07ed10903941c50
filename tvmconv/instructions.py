"""The CPU's own bf16 instructions, a vector at a time.

TVM's code generation has no bf16 and does not vectorize calls of functions it does not know. Definitions therefore
call `DOT` and `ROUND` for one lane (definitions/pairs.py), which every step of a schedule takes for plain arithmetic;
here a loop over lanes becomes one call of the vector function of that name, which schedules/x86_dot.py defines in
LLVM. Where stores are not by vectors, rounding is by integer arithmetic.
"""

from __future__ import annotations

from typing import Any

from tvm import sym, tirx
from tvm.ir import Call
from tvm_ffi.structural import structural_map

from .definitions.pairs import DOT, ROUND, calls
from .definitions.types import narrow
from .shuffles import lanes_of


def by_instructions(body: Any) -> Any:
    """Return the statement with calls of DOT and ROUND made vectors', or integer arithmetic."""
    body = structural_map(body, (tirx.For, _by_vector))
    return structural_map(body, (Call, lambda call: narrow(call.args[1], "bf16") if calls(call, ROUND) else call))


def _by_vector(loop: Any) -> Any:
    store = loop.body
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(store, tirx.BufferStore):
        return loop
    if calls(store.value, ROUND):
        return _rounded(loop, store, store.value.args[1])
    if isinstance(store.value, tirx.Add) and calls(store.value.b, DOT):
        return _summed(loop, store, *store.value.b.args[1:])
    return loop


def _summed(loop: Any, store: Any, data: Any, weight: Any) -> Any:
    """``sum[lane] = sum[lane] + DOT(data, weight[lane])``, of which all lanes read the same data or shuffle it."""
    lanes, sums = int(loop.extent), lanes_of(store.value.a, loop)
    added = tirx.call_pure_extern(
        f"float32x{lanes}", f"{DOT}_{lanes}", sums, lanes_of(data, loop), lanes_of(weight, loop)
    )
    return tirx.BufferStore(store.buffer, added, sums.indices)


def _rounded(loop: Any, store: Any, value: Any) -> Any:
    """``output[lane] = ROUND(value)``, a loop that keeps values in a vector, and one store; as it is if lanes lie apart."""
    indices, lanes = _vector(store.indices, loop), int(loop.extent)
    if indices is None:
        return loop
    values = tirx.decl_buffer((lanes,), "float32", "sums", scope="local")
    keep = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, tirx.BufferStore(values, value, [loop.loop_var]))
    vector = tirx.BufferLoad(values, [tirx.Ramp(0, 1, lanes)])
    rounded = tirx.call_pure_extern(f"uint16x{lanes}", f"{ROUND}_{lanes}", vector)
    return tirx.SeqStmt([tirx.AllocBuffer(values), keep, tirx.BufferStore(store.buffer, rounded, indices)])


def _vector(indices: Any, loop: Any) -> list[Any] | None:
    """Return `indices` of all lanes at once; None if lanes do not lie together along the last axis."""
    lane, analyzer = loop.loop_var, sym.Analyzer()
    firsts = [
        analyzer.simplify(
            structural_map(index, (tirx.Var, lambda var: tirx.const(0, "int32") if var.same_as(lane) else var))
        )
        for index in indices
    ]
    beyond = [*[0] * (len(firsts) - 1), lane]
    if not all(analyzer.can_prove_equal(i, f + b) for i, f, b in zip(indices, firsts, beyond, strict=True)):
        return None
    return [*firsts[:-1], tirx.Ramp(firsts[-1], 1, int(loop.extent))]
