"""Quotients by free extents, hidden from TVM's (0.27) simplifier of indices, which fails on them."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call

from ...lowering.common.rewrites import EXTERN, map_nodes

_NAMES = {tirx.FloorDiv: "tvmconv_quotient", tirx.FloorMod: "tvmconv_rest"}
_MAKERS = {"tvmconv_quotient": tirx.floordiv, "tvmconv_rest": tirx.floormod}


def hide_quotients() -> tvm.transform.Pass:
    """Return the pass that replaces quotients and remainders with non-constant divisors by calls, which TVM's simplifier leaves alone."""

    def hidden(node: Any) -> Any:
        if isinstance(node.b, tirx.IntImm):
            return node
        return tirx.call_pure_extern(str(node.ty), _NAMES[type(node)], node.a, node.b)

    def hide(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        body = func.body
        for kind in _NAMES:
            body = map_nodes(body, kind, hidden)
        return func.with_body(body)

    return tirx.transform.prim_func_pass(hide, opt_level=0, name="HideQuotients")


def show_quotients() -> tvm.transform.Pass:
    """Return the pass that turns these calls into quotients and remainders again."""

    def shown(call: Any) -> Any:
        make = _MAKERS.get(str(getattr(call.args[0], "value", ""))) if call.op.same_as(EXTERN) else None
        return call if make is None else make(*call.args[1:])

    def show(func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
        return func.with_body(map_nodes(func.body, Call, shown))

    return tirx.transform.prim_func_pass(show, opt_level=0, name="ShowQuotients")
