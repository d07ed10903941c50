"""TVM's ONNX frontend with conversions of our own: of operators that it (0.27) takes for others.

It knows ThresholdedRelu, ReduceLogSumExp and IsInf of finite numbers alone, takes what a OneHot gives for f64 or i64, an exponent for a
number of the type of its base, and reads no attributes of a Slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import TYPE_CHECKING, Any

import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import ONNXGraphImporter

from ...ir.constants import constant

if TYPE_CHECKING:
    from onnx import ModelProto

Emit = Callable[[relax.Expr], relax.Expr]
_FLOATS = ("float32", "float16", "float64")


def read(model: ModelProto) -> tvm.IRModule:
    """Return an ONNX model as the frontend reads it."""
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)
    return _Importer(None, "float32", sanitize=False).from_onnx(model.graph, opset)


class _Importer(ONNXGraphImporter):  # type: ignore[misc]
    def _convert_operator(self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int) -> relax.Expr:
        convert = _CONVERTERS.get(op_name)
        made = None if convert is None else convert(self.bb.emit, inputs, attrs)
        if made is not None:
            return self.bb.normalize(made)
        if op_name == "Pow":
            inputs[1] = _as_base(*inputs)
        made = super()._convert_operator(op_name, inputs, attrs, opset)
        return self.bb.normalize(relax.op.astype(made, _dtype(inputs[2]))) if op_name == "OneHot" else made


def _dtype(expr: relax.Expr) -> str:
    return str(expr.ty.dtype)


def _as_base(base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    """Return an exponent in the type of its base; of integers it keeps its own."""
    dtype = _dtype(base)
    return exponent if dtype == _dtype(exponent) or dtype not in _FLOATS else relax.op.astype(exponent, dtype)


def _infinite(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
    """Return an IsInf of one sign as a comparison with that infinity; of none there are none."""
    signs = [sign for sign, name in ((1, "detect_positive"), (-1, "detect_negative")) if given.get(name, 1)]
    if len(signs) == 2:
        return None
    # Without a sign, with what no number equals.
    return relax.op.equal(inputs[0], relax.const(inf * signs[0] if signs else nan, _dtype(inputs[0])))


def _thresholded(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr:
    """Return a ThresholdedRelu as a choice; what is not a number is not above its threshold, and 0, as ONNX has it."""
    alpha, zero = (relax.const(each, _dtype(inputs[0])) for each in (given.get("alpha", 1.0), 0.0))
    return relax.op.where(relax.op.greater(inputs[0], alpha), inputs[0], zero)


def _log_sum_exp(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
    """Return a ReduceLogSumExp by the greatest element that is finite, else 0."""
    data, axes = inputs[0], given.get("axes")
    if len(inputs) > 1 and inputs[1] is not None:
        array = constant(inputs[1])
        if array is None:
            return None
        axes = array.tolist()
    if not axes and given.get("noop_with_empty_axes"):
        return data
    axes = [int(axis) for axis in axes] if axes else None
    most = emit(relax.op.max(data, axes, True))
    taken = emit(relax.op.where(relax.op.isinf(most), relax.const(0, _dtype(data)), most))
    total = relax.op.sum(relax.op.exp(relax.op.subtract(data, taken)), axes, True)
    total = emit(relax.op.add(relax.op.log(total), taken))
    return total if given.get("keepdims", 1) else relax.op.squeeze(total, axes)


def _sliced(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
    """Return a Slice by its attributes, which it has up to opset 9."""
    if "starts" not in given:
        return None
    starts, ends = ([int(each) for each in given[name]] for name in ("starts", "ends"))
    axes = [int(axis) % inputs[0].ty.ndim for axis in given.get("axes", range(len(starts)))]
    return relax.op.strided_slice(inputs[0], axes, starts, ends)


def _alone(emit: Emit, inputs: Sequence[Any], given: dict[str, Any]) -> relax.Expr | None:
    """Return a Dropout without a mask, which gives an output of the model; onnxruntime removed the others."""
    of_inference = len(inputs) < 3 and given["tvm_custom"]["num_outputs"] == 1
    return inputs[0] if of_inference else None  # no tuple, which ConvertLayout does not take


# None of these: the frontend's own.
_CONVERTERS: dict[str, Callable[[Emit, Sequence[Any], dict[str, Any]], relax.Expr | None]] = {
    "Dropout": _alone,
    "IsInf": _infinite,
    "ReduceLogSumExp": _log_sum_exp,
    "Slice": _sliced,
    "ThresholdedRelu": _thresholded,
}
