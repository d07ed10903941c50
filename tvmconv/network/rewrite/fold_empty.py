"""Replace empty tensors by constants, and fold operators on them: no kernel takes an extent of 0."""

from __future__ import annotations

from math import inf, isinf, nan
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ..ir.constants import static_shape
from ..ir.mutator import Rebinding, each_function, tidy

# Results of operators on empty tensors, as PyTorch and ONNX define them.
_OF_NOTHING = {f"relax.nn.conv{rank}d{kind}": 0.0 for rank in (1, 2, 3) for kind in ("", "_transpose")}
_OF_NOTHING |= {"relax.matmul": 0.0, "relax.sum": 0.0, "relax.prod": 1.0}
_OF_NOTHING |= {f"relax.{name}": nan for name in ("mean", "variance", "std")}
_OF_NOTHING |= {"relax.max": -inf, "relax.min": inf}  # for integers the least and the greatest
# Operators that return their first argument if there is nothing to write.
_WRITES = ("relax.scatter_elements", "relax.scatter_nd", "relax.slice_scatter")


def fold_empty(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose operators take no empty tensors."""
    return tidy(each_function(mod, lambda new, _: _Folding(new), with_bindings=True))


@mutator
class _Folding(Rebinding):
    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return a constant for an empty tensor; None for others."""
        return _constant(binding.var.ty) if _is_empty(binding.var) else None

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return the result of an operator with empty operands; any other call unchanged."""
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if name == "relax.concat":
            return self._joined(call)
        if not any(map(_is_empty, call.args)) or static_shape(call.ty) is None:
            return call
        if name in _WRITES:
            return call.args[0]
        if name in _OF_NOTHING:
            return _constant(call.ty, _OF_NOTHING[name])
        return _constant(call.ty, call.attrs.pad_value) if name == "relax.nn.pad" else call

    def _joined(self, call: relax.Call) -> relax.Expr:
        """Return a concatenation without its empty parts."""
        (parts,) = call.args
        parts = self.lookup_binding(parts) if isinstance(parts, relax.Var) else parts
        if not isinstance(parts, relax.Tuple) or not any(map(_is_empty, parts.fields)):
            return call
        left = [part for part in parts.fields if not _is_empty(part)]
        return left[0] if len(left) == 1 else relax.op.concat(left, call.attrs.axis)


def _is_empty(value: Any) -> bool:
    return 0 in (static_shape(getattr(value, "ty", None)) or ())


def _constant(type_: Any, number: float = 0) -> relax.Constant:
    dtype = str(type_.dtype)
    if isinf(number) and not dtype.startswith(("float", "bfloat")):
        number = number > 0 if dtype == "bool" else getattr(np.iinfo(dtype), "max" if number > 0 else "min")
    return relax.const(np.full(static_shape(type_) or (), number), dtype)
