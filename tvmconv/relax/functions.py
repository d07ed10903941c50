"""Activations that are TVM's to compute, by the arithmetic on vectors that our kernels' epilogues have.

TVM calls the C library's functions, a number at a time: of 295,000 numbers 0.8 ms for a sigmoid, 1.6 for tanh and 2.7 for GELU,
where these take 0.1 to 0.2 (one core of a Zen 3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, te, topi

from ..algorithms.epilogue import apply_operator
from ..epilogue import Step

Legalize = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]
FLOATS = ("float32", "float16")


def by_step(name: str) -> Legalize:
    """Return how an operator is legalized that computes an epilogue's step; of doubles it is TVM's."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if str(call.ty.dtype) not in FLOATS:
            return call.op.get_attr("FLegalize")(builder, call)
        return builder.call_te(computed, call.args[0], primfunc_name_hint=name)

    def computed(data: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return apply_operator(Step(name), data(*at).astype("float32")).astype(data.dtype)

        return te.compute(data.shape, element, name, tag=topi.tag.ELEMWISE)

    return legalize


# By the name of the operator.
FUNCTIONS = {
    "relax.nn.gelu": by_step("gelu"),
    "relax.nn.gelu_tanh": by_step("gelu_tanh"),
    "relax.nn.silu": by_step("silu"),
    "relax.sigmoid": by_step("sigmoid"),
    "relax.tanh": by_step("tanh"),
}
