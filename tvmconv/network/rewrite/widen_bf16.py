"""TVM's operators on bf16, computed in f32.

TVM 0.27 rewrites bf16 to f32 and 16-bit integers when it lowers a function, which fails at constants: maximum pools and batch
normalizations do not compile (``dtype mismatch on BufferStore``), ``relax.max``, ``topk`` and ``sort`` give wrong answers, and
layer normalizations require f32 or f16. So every operator that computes gets f32 and is rounded after, at no cost in a fused loop;
pools and normalizations, which are not fused, are ours and convert by themselves.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir import TupleType
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..ir.constants import constant
from ..ir.mutator import each_function
from ..ir.operators import FUNCTION_CALLS

_NARROW, _WIDE = "bfloat16", "float32"
# Operators that move numbers without computing any.
_MOVES = {
    f"relax.{name}"
    for name in (
        "astype", "broadcast_to", "concat", "expand_dims", "flatten", "flip", "layout_transform", "memory.view", "permute_dims",
        "repeat", "reshape", "split", "squeeze", "stack", "strided_slice", "take", "tile",
    )
}  # fmt: skip
# Operators that read and write bf16, and compute in f32 by themselves (`max_pool.py`, `mean_pool.py`, `normalization.py`).
_OURS = {f"relax.nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)}
_OURS |= {f"relax.nn.{of}_norm" for of in ("group", "instance", "layer", "rms")}


def widen(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose operators on bf16 compute in f32."""
    return each_function(mod, lambda new, _: _Widening(new))


@mutator
class _Widening(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return an operator on f32 between conversions, if it computes with bf16."""
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if (
            name in _MOVES | _OURS | FUNCTION_CALLS
            or not name.startswith("relax.")
            or not any(map(_is_narrow, call.args))
        ):
            return call
        args = [self._widened(arg) if _is_narrow(arg) else arg for arg in call.args]
        made = self.builder_.emit(relax.Call(call.op, args, call.attrs, call.ty_args))
        if not isinstance(made.ty, TupleType):
            return self._narrowed(made, call.ty)
        parts = (self.builder_.emit(relax.TupleGetItem(made, index)) for index in range(len(made.ty.fields)))
        return relax.Tuple([self._narrowed(part, type_) for part, type_ in zip(parts, call.ty.fields, strict=True)])

    def _widened(self, arg: relax.Expr) -> relax.Expr:
        array = constant(arg)
        # A constant stays one: the legalization of a power reads its exponent, so that x**3 is two products, not pow.
        if array is not None and array.size == 1:
            return relax.const(array.astype(_WIDE))
        return self.builder_.emit(relax.op.astype(arg, _WIDE))

    def _narrowed(self, tensor: relax.Var, type_: Any) -> relax.Expr:
        if str(tensor.ty.dtype) == str(type_.dtype):
            return tensor
        return self.builder_.emit(relax.op.astype(tensor, str(type_.dtype)))


def _is_narrow(expr: relax.Expr) -> bool:
    return str(getattr(expr.ty, "dtype", "")) == _NARROW
