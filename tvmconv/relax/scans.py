"""Cumulative sums and products as tensor expressions, which plans run: TVM's own is found when its virtual machine is built.

Each round adds to every element that which lies 1, 2, 4 ... before it (Hillis and Steele), so rounds are loops like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from .functions import Legalize
from .stages import KEPT


def _scanned(combine: Callable[[Any, Any], Any], neutral: int, name: str) -> Legalize:
    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        data, axis, dtype = call.args[0], call.attrs.axis, str(call.ty.dtype)
        if axis is None:
            data = builder.emit(relax.op.reshape(data, (-1,)))
        at = 0 if axis is None else int(axis) % data.ty.ndim
        return builder.call_te(rounds, data, at, dtype, bool(call.attrs.exclusive), primfunc_name_hint=name)

    def rounds(data: te.Tensor, axis: int, dtype: str, exclusive: bool) -> te.Tensor:
        def before(tensor: te.Tensor, at: tuple[Any, ...], step: int) -> Any:
            there = tensor(*at[:axis], at[axis] - step, *at[axis + 1 :])
            return tirx.if_then_else(at[axis] >= step, there, tirx.const(neutral, dtype))

        total = te.compute(data.shape, lambda *at: data(*at).astype(dtype), "scan")
        if exclusive:
            shifted = total
            total = te.compute(data.shape, lambda *at: before(shifted, at, 1), "scan")
        step = 1
        while step < int(data.shape[axis]):
            total = _round(total, step, before)
            step *= 2
        return total

    def _round(total: te.Tensor, step: int, before: Callable[..., Any]) -> te.Tensor:
        """Return a round, which is computed whole before the next: else each would compute the one before twice."""
        return te.compute(
            total.shape, lambda *at: combine(total(*at), before(total, at, step)), "scan", attrs={KEPT: 1}
        )

    return legalize


# By the name of the operator.
SCANS = {
    "relax.cumsum": _scanned(lambda x, y: x + y, 0, "cumsum"),
    "relax.cumprod": _scanned(lambda x, y: x * y, 1, "cumprod"),
}
