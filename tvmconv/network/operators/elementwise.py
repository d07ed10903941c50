"""Activations that are TVM's to compute, by the arithmetic on vectors that our kernels' epilogues have.

TVM calls the C library's functions, a number at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, topi

from ...algorithms.epilogue import apply_operator
from ...epilogue import Step

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
FLOATS = ("float32", "float16")
# TVM's numbers of operators for FuseOps: that compute each element of few others, that what follows element by element is fused
# with, and that are left alone.
INJECTIVE, OUT_FUSABLE, OPAQUE = 2, 4, 8


def by_element(function: Callable[[Any], Any], name: str) -> Legalize:
    """Return how an operator on each number is legalized, by a function of f32; of other types than f32 and f16 it is TVM's."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if str(call.ty.dtype) not in FLOATS:
            return call.op.get_attr("FLegalize")(builder, call)
        return builder.call_te(computed, call.args[0], primfunc_name_hint=name)

    def computed(data: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return function(data(*at).astype("float32")).astype(data.dtype)

        return te.compute(data.shape, element, name, tag=topi.tag.ELEMWISE)

    return legalize


def _by_step(name: str) -> Legalize:
    return by_element(lambda x: apply_operator(Step(name), x), name)


# Functions by the operators' names.
OPERATORS = {
    "relax.nn.gelu": _by_step("gelu"),
    "relax.nn.gelu_tanh": _by_step("gelu_tanh"),
    "relax.nn.silu": _by_step("silu"),
    "relax.sigmoid": _by_step("sigmoid"),
    "relax.tanh": _by_step("tanh"),
}
