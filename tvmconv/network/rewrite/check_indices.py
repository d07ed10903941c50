"""Checks of indices from data before gathers and scatters: an index beyond its axis is an IndexError, as in PyTorch and onnxruntime.

A C function checks and copies them (`tvmconv/lowering/native/operators/indices.c`), so the call ends before memory outside of the data is
read. Indices with known bounds, such as those of a sort, clipped ones, and their sums and products, are not checked, and so are fused.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.relax.expr_functor import mutator

from ...checks import LARGEST
from ..ir.bounds import bounds_of, is_within
from ..ir.constants import static_shape
from ..ir.free import dims_of, number_of
from ..ir.mutator import GraphMutator, each_function

FUNCTION = "tvmconv_check_indices"
_BYTES = {"int32": 4, "int64": 8}


def check_indices(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module whose gathers and scatters have checked indices, except where these are known to be within bounds."""
    return each_function(mod, _Checked, with_bindings=True)


@mutator
class _Checked(GraphMutator):
    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return a gather or scatter with checked indices; None if these are within bounds, or for other operators."""
        call = self._graph.call(binding.var)
        axes = _axes(call) if call is not None else None
        if call is None or axes is None or str(call.args[1].ty.dtype) not in _BYTES:
            return None
        bounds = bounds_of(call.args[1], self._graph.values.get)
        if all(is_within(bounds, low, end) for low, end in axes):
            return None
        indices = self.visit_expr(call.args[1])
        checked = self.builder_.emit(
            self.builder_.call_te(
                _check,
                indices,
                [low for low, _ in axes],
                [end for _, end in axes],
                _type_of(call),
                primfunc_name_hint="check_indices",
            )
        )
        others = [self.visit_expr(each) for each in call.args[2:]]
        return relax.Call(call.op, [self.visit_expr(call.args[0]), checked, *others], call.attrs, call.ty_args)


def _axes(call: relax.Call) -> list[tuple[Any, Any]] | None:
    """Return the range of an operator's indices along each indexed axis, begin and end; None if it has no indices to check."""
    name, dims = call.op.name, dims_of(call.args[0].ty) if call.args else None
    if dims is None or not all(dims_of(each.ty) is not None for each in call.args[:2]):
        return None
    if name == "relax.take" and str(call.attrs.mode) == "fast":
        return [(0, prod(dims) if call.attrs.axis is None else dims[int(call.attrs.axis)])]
    if name == "relax.gather_elements":
        return [(0, dims[int(call.attrs.axis)])]
    if name == "relax.scatter_elements":
        extent = dims[int(call.attrs.axis)]
        return [(0 - extent, extent)]
    if name in ("relax.gather_nd", "relax.scatter_nd"):
        count, batches = (dims_of(call.args[1].ty) or ())[-1], int(getattr(call.attrs, "batch_dims", 0))
        return [(0, extent) for extent in dims[batches : batches + count]] if isinstance(count, int) else None
    return None


def _type_of(call: relax.Call) -> str:
    """Return the type of checked indices: 32 bits, which are read faster, if they hold all offsets in the data."""
    dtype, shape = str(call.args[1].ty.dtype), static_shape(call.args[0].ty)
    is_fixed = call.op.name == "relax.gather_nd" or shape is None  # TVM requires 64 bits for gather_nd
    return dtype if is_fixed or prod(shape or ()) > LARGEST else "int32"


def _check(indices: te.Tensor, lows: Sequence[Any], ends: Sequence[Any], dtype: str) -> te.Tensor:
    rows, width = prod(number_of(each) for each in indices.shape), len(ends)
    count = rows // width if isinstance(rows, int) else tirx.floordiv(rows, width)
    sizes = [_BYTES[str(each)] for each in (indices.dtype, dtype)]

    def body(given: Any, written: Any) -> Any:
        steps = []
        for column, bounds in enumerate(zip(lows, ends, strict=True)):
            numbers = [tirx.Cast("int64", each) for each in (count, width, column, *bounds, *sizes)]
            failed = tirx.call_extern("int32", FUNCTION, given[0].data, written[0].data, *numbers) != 0
            steps.append(tirx.IfThenElse(failed, tirx.Evaluate(tirx.tvm_throw_last_error()), None))
        return steps[0] if width == 1 else tirx.SeqStmt(steps)

    return te.extern([indices.shape], [indices], body, dtype=dtype, name="check_indices")
