"""Fuse patterns of several operators, as frontends and onnxruntime write them, into one operator.

onnxruntime fuses a product and an addition into a two-dimensional Gemm between reshapes, which would end a kernel's epilogue. TVM's
ONNX frontend writes an instance normalization by its formula, and PyTorch's exporter a group normalization as one of instances between
reshapes; older exporters write layer normalizations by their formula, too. torch.export writes a Linear on a transposed tensor as a
product of a batch by repetitions of one matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ..ir.graph import along, scalar
from ..ir.mutator import GraphMutator, each_function, tidy
from ..ir.problem_of import is_product
from ..ir.stand_ins import StandIn
from .recognise_normalization import RowsNormalization, find_normalization

Shape = tuple[int, ...]


def fuse(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a simplified module with one operator in place of each pattern."""
    return tidy(each_function(mod, _PatternFusing, with_bindings=True))


@mutator
class _PatternFusing(GraphMutator):
    def __init__(self, mod: tvm.IRModule, function: relax.Function) -> None:
        super().__init__(mod, function)
        found = (find_normalization(variable, self._graph) for variable in self._graph.values)
        # Centered values also match a normalization by their root mean square: the first match includes the mean.
        rows = {
            each.output: each for each in reversed(list(found)) if each is not None and not self._is_instances(each)
        }
        self._rows = {self._scaled(each)[0]: each for each in rows.values()}

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the operator for the formula of a normalization; None for other values."""
        found = self._rows.get(binding.var)
        return None if found is None else self._of_rows(found)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Return the operator for a pattern that a call ends; any other call unchanged."""
        name, shape, made = getattr(call.op, "name", ""), self._graph.shape(call), None
        if name == "relax.reshape" and shape is not None:
            made = self._product(call.args[0], shape)
            made = self._of_groups(call, shape) if made is None else made
        elif name == "relax.divide" and shape is not None:
            made = self._of_instances(call, shape)
        elif name == "relax.broadcast_to" and shape is not None and self._graph.shape(call.args[0]) == shape:
            made = self.visit_expr(call.args[0])
        elif name == "relax.matmul" and shape is not None:
            made = self._by_matrix(call, shape)
        return super().visit_call_(call) if made is None else made

    def visit_tuple_getitem_(self, item: relax.TupleGetItem) -> relax.Expr:
        """Return the values of a top-k of one element as a maximum; a minimum would be NaN where a sort has NaN last."""
        call = self._graph.call(item.tuple_value, "relax.topk")
        is_one = call is not None and int(call.attrs.k) == 1 and str(call.attrs.ret_type) == "both"
        if call is None or not is_one or item.index or not call.attrs.largest:
            return super().visit_tuple_getitem_(item)
        return relax.op.max(self.visit_expr(call.args[0]), int(call.attrs.axis) % call.args[0].ty.ndim, keepdims=True)

    def _product(self, variable: Any, shape: Shape) -> relax.Expr | None:
        """Return a product of flattened rows, perhaps with a vector added, as one of the rows in their `shape`; None for others."""
        call = self._graph.call(variable)
        if call is None or len(self._graph.readers(variable)) != 1:
            return None
        if call.op.name == "relax.add" and getattr(call.args[1].ty, "ndim", -1) == 1:
            product = self._product(call.args[0], shape)
            return None if product is None else relax.op.add(self.builder_.emit(product), self.visit_expr(call.args[1]))
        rows = self._graph.call(call.args[0], "relax.reshape") if is_product(call) else None
        if rows is None or self._graph.array(call.args[1]) is None:
            return None
        before, matrix = self._graph.shape(rows.args[0]), self._graph.shape(call.args[1])
        if before is None or matrix is None or (*before[:-1], matrix[1]) != shape or before[-1] != matrix[0]:
            return None
        return relax.op.matmul(self.visit_expr(rows.args[0]), self.visit_expr(call.args[1]))

    def _by_matrix(self, call: relax.Call, shape: Shape) -> relax.Expr | None:
        """Return a product by one fixed matrix for one by a batch of its repetitions; None for others."""
        repeated = self._graph.call(call.args[1], "relax.broadcast_to")
        array = None if repeated is None else self._graph.array(repeated.args[0])
        rows = self._graph.shape(call.args[0])
        if array is None or array.ndim < 2 or array.size != array.shape[-1] * array.shape[-2]:
            return None
        if rows is None or rows[:-1] != shape[:-1]:
            return None
        matrix = relax.const(array.reshape(array.shape[-2:]), str(call.args[1].ty.dtype))
        return relax.op.matmul(self.visit_expr(call.args[0]), matrix)

    def _of_rows(self, found: RowsNormalization) -> relax.Expr:
        """Return the operator of a normalization of rows, with its axes in the order of the result."""
        rank, extent, dtype = len(found.order), int(found.data.ty.shape[found.axis]), str(found.data.ty.dtype)
        _, scale, shift = self._scaled(found)
        data, axis = self.visit_expr(found.data), found.order.index(found.axis)
        if found.order != tuple(range(rank)):
            data = self.builder_.emit(relax.op.permute_dims(data, found.order))
        factors = relax.const(np.ones(extent) if scale is None else scale, dtype)
        if not found.takes_mean:
            return relax.op.nn.rms_norm(data, factors, axis, found.epsilon)
        shifts = relax.const(np.zeros(extent) if shift is None else shift, dtype)
        used = {"scale": scale is not None, "center": shift is not None}
        return relax.op.nn.layer_norm(data, factors, shifts, axis, found.epsilon, **used)

    def _scaled(self, found: RowsNormalization) -> tuple[relax.Var, Any, Any]:
        """Return the last variable of a normalization, and the fixed scale and shift of its rows."""
        last: relax.Var = found.output
        vectors: list[Any] = []
        for name in ("relax.multiply", "relax.add")[: 1 + found.takes_mean]:
            reader, vector = self._by_element(last, found, name)
            last, vectors = last if reader is None else reader, [*vectors, vector]
        return last, *[*vectors, None][:2]

    def _by_element(self, variable: relax.Var, found: RowsNormalization, name: str) -> tuple[relax.Var | None, Any]:
        """Return the only reader of rows, if it multiplies their elements by fixed numbers, or adds these, and the numbers."""
        readers = self._graph.readers(variable)
        call = self._graph.call(readers[0], name) if len(readers) == 1 else None
        if call is None or self._graph.shape(call) != self._graph.shape(variable):
            return None, None
        array = self._graph.array(call.args[1 if call.args[0].same_as(variable) else 0])
        rank, axis = len(found.order), found.order.index(found.axis)
        vector = along(array, rank, axis, int(found.data.ty.shape[found.axis]))
        return (None, None) if vector is None else (readers[0], vector)

    def _of_instances(self, call: relax.Call, shape: Shape) -> relax.Expr | None:
        """Return an instance normalization for its formula, without scales."""
        found = None if len(shape) < 2 or isinstance(shape[1], StandIn) else self._normalized(call, shape)
        return None if found is None else self._normalization(*found, shape, None)

    def _is_instances(self, found: RowsNormalization) -> bool:
        """Return whether a normalization of rows is the frontend's formula for instances of one spatial axis."""
        call, shape = self._graph.call(found.output, "relax.divide"), self._graph.shape(found.output)
        return call is not None and shape is not None and self._normalized(call, shape) is not None

    def _of_groups(self, call: relax.Call, shape: Shape) -> relax.Expr | None:
        """Return a group normalization for one of instances between reshapes, without scales."""
        inner = self._graph.call(call.args[0])
        for name, neutral in (("relax.add", 0), ("relax.multiply", 1)):
            if inner is not None and inner.op.name == name:
                array = self._graph.array(inner.args[1])
                if array is None or (array != neutral).any():
                    return None
                inner = self._graph.call(inner.args[0])
        split = self._graph.shape(inner) if inner is not None and inner.op.name == "relax.divide" else None
        found = None if split is None or inner is None else self._normalized(inner, split)
        if found is None or split is None:
            return None
        before = self._graph.call(found[0], "relax.reshape")
        if before is None or self._graph.shape(before.args[0]) != shape or len(split) != 3:
            return None
        if len(shape) < 3 or split[0] != shape[0] or isinstance(shape[1], StandIn) or shape[1] % split[1]:
            return None
        return self._normalization(before.args[0], found[1], shape, split[1])

    def _normalization(self, data: Any, epsilon: float, shape: Shape, groups: int | None) -> relax.Expr:
        channels, axes = shape[1], list(range(2, len(shape)))
        dtype = str(data.ty.dtype)
        data, scale, shift = self.visit_expr(data), *(relax.const(np.full(channels, each), dtype) for each in (1, 0))
        if groups is None:
            return relax.op.nn.instance_norm(data, scale, shift, channel_axis=1, axes=axes, epsilon=epsilon)
        return relax.op.nn.group_norm(data, scale, shift, groups, channel_axis=1, axes=axes, epsilon=epsilon)

    def _normalized(self, call: relax.Call, shape: Shape) -> tuple[Any, float] | None:
        """Return x and e of ``(x - mean(x)) / sqrt(variance(x) + e)`` over all axes but the first two."""
        graph = self._graph
        centered, root = graph.call(call.args[0], "relax.subtract"), graph.call(call.args[1], "relax.sqrt")
        total = None if root is None else graph.call(root.args[0], "relax.add")
        if centered is None or total is None:
            return None
        data, mean, variance = centered.args[0], graph.call(centered.args[1], "relax.mean"), graph.call(total.args[0])
        epsilon = scalar(graph.array(total.args[1]))
        if mean is None or variance is None or variance.op.name != "relax.variance" or epsilon is None:
            return None
        axes = list(range(2, len(shape)))
        same = all(
            each.args[0].same_as(data) and sorted(map(int, each.attrs.axis or ())) == axes for each in (mean, variance)
        )
        return (data, epsilon) if axes and same else None
