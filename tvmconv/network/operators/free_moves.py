"""Reshapes of free extents as views: TVM (0.27) copies, as it cannot prove products of symbols equal."""

from __future__ import annotations

from tvm import relax

from ..ir.free import dims_of, is_free
from ..ir.moves import RESHAPES


def _view(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if not is_free(call.args[0].ty):
        return call.op.get_attr("FLegalize")(builder, call)
    return relax.op.memory.view(call.args[0], relax.ShapeExpr(dims_of(call.ty)), str(call.ty.dtype))


OPERATORS = dict.fromkeys(RESHAPES, _view)
