"""Batch normalizations outside kernels as a product and a sum with fixed numbers for each channel."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ..ir.mutator import GraphMutator, each_function, tidy


def replace_batch_norms(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module with a product and a sum in place of batch normalizations with fixed numbers; TVM would divide by roots in each call."""
    return tidy(each_function(mod, _Mapping, with_bindings=True))


@mutator
class _Mapping(GraphMutator):
    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        """Return a batch normalization as two operators; 16-bit types are computed in f32."""
        found = self._graph.normalization(item)
        if found is None:
            return super().visit_tuple_getitem_(item)
        data, dtype = self.visit_expr(found.data), str(found.data.ty.dtype)
        axes = [1] * (data.ty.ndim - 1 - found.axis)
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        numbers = (each.reshape(-1, *axes) for each in (found.factor, found.shift))
        scale, shift = (relax.const(each.astype(wide), wide) for each in numbers)
        data = data if dtype == wide else self.builder_.emit(relax.op.astype(data, wide))
        made = relax.op.add(self.builder_.emit(relax.op.multiply(data, scale)), shift)
        return made if dtype == wide else relax.op.astype(self.builder_.emit(made), dtype)
