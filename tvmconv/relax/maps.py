"""Batch normalizations that no kernel has, as maps: a product and a sum by fixed numbers for each channel."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from .graph import Graph
from .mutating import each_function, tidied


def as_maps(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose batch normalizations by fixed numbers are a product and a sum; TVM would divide by roots in each call."""
    return tidied(each_function(mod, lambda new, function: _Mapping(new, Graph(function)), with_bindings=True))


@mutator
class _Mapping(PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.IRModule, graph: Graph) -> None:
        super().__init__(mod)
        self._graph = graph

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        """Return what a batch normalization computes by two operators, of 16 bits in f32."""
        call = self._graph.call(item.tuple_value, "relax.nn.batch_norm")
        arrays = [] if call is None else [self._graph.array(arg) for arg in call.args[1:5]]
        fixed = [array.astype(np.float64) for array in arrays if array is not None]
        if call is None or item.index or len(fixed) < 4 or getattr(call.attrs, "training", False):
            return super().visit_tuple_getitem_(item)
        gamma, beta, mean, variance = fixed
        factor = gamma / np.sqrt(variance + float(call.attrs.epsilon))
        data, dtype = self.visit_expr(call.args[0]), str(call.args[0].ty.dtype)
        axes = [1] * (data.ty.ndim - 1 - int(call.attrs.axis) % data.ty.ndim)
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        numbers = (each.reshape(-1, *axes) for each in (factor, beta - mean * factor))
        scale, shift = (relax.const(each.astype(wide), wide) for each in numbers)
        data = data if dtype == wide else self.builder_.emit(relax.op.astype(data, wide))
        made = relax.op.add(self.builder_.emit(relax.op.multiply(data, scale)), shift)
        return made if dtype == wide else relax.op.astype(self.builder_.emit(made), dtype)
