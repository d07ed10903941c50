"""QuantizeLinear between kernels, as in epilogues: ties to even, then the zero point; NaN gives the zero point, unlike TVM's (0.27)."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from ...algorithms.epilogue import round_to_integer
from ...dtypes import ROWS
from ...epilogue import Step
from ..ir.constants import constant
from ..ir.graph import scalar
from ..ir.quantizers import QUANTIZERS

# Names in a Problem of the quantized types.
QUANTIZED = {ROWS[name].numpy: name for name in ("u8", "s8")}


def step_of(call: relax.Call) -> Step | None:
    """Return a quantizer as a step of an epilogue; None if its scale and zero point are not one fixed pair, or its types are others."""
    scale, zero = (scalar(constant(each)) for each in call.args[1:])
    if scale is None or zero is None or str(call.ty.dtype) not in QUANTIZED or str(call.args[0].ty.dtype) != "float32":
        return None
    return Step(QUANTIZERS[call.op.name], (scale, zero)) if scale > 0 and np.isfinite(scale) else None


def quantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Return a quantizer of f32 to 8 bits; TVM's for other types."""
    out, step = str(call.ty.dtype), step_of(call)
    if out not in QUANTIZED or str(call.args[0].ty.dtype) != "float32":
        return call.op.get_attr("FLegalize")(builder, call)
    axis, by_reciprocal = int(call.attrs.axis), QUANTIZERS[call.op.name] == "q_reciprocal"

    def rounded(x: Any, scale: Any, zero: Any) -> Any:
        quotient = x * (1 / scale) if by_reciprocal else x / scale
        quotient = tirx.if_then_else(tirx.isnan(quotient), tirx.const(0, "float32"), quotient)
        least, greatest = (tirx.const(bound, "float32") for bound in ROWS[QUANTIZED[out]].range or ())
        whole = tirx.nearbyint(quotient) + zero.astype("float32")
        return tirx.max(tirx.min(whole, greatest), least).astype("int32").astype(out)

    def by_step(data: te.Tensor) -> te.Tensor:
        assert step is not None
        given = step
        return te.compute(
            data.shape,
            lambda *at: round_to_integer(given, data(*at), QUANTIZED[out]),
            "quantize",
            tag=topi.tag.ELEMWISE,
        )

    def by_tensors(data: te.Tensor, scale: te.Tensor, zero: te.Tensor) -> te.Tensor:
        def of(tensor: te.Tensor, at: tuple[Any, ...]) -> Any:
            alone = all(int(extent) == 1 for extent in tensor.shape)
            return tensor(*[0] * len(tensor.shape)) if alone else tensor(at[axis])

        return te.compute(data.shape, lambda *at: rounded(data(*at), of(scale, at), of(zero, at)), "quantize")

    if step is not None:
        return builder.call_te(by_step, call.args[0], primfunc_name_hint="quantize")
    return builder.call_te(by_tensors, *call.args, primfunc_name_hint="quantize")


OPERATORS = dict.fromkeys(QUANTIZERS, quantize)
