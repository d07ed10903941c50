"""ONNX's operators that TVM's ONNX frontend (0.27) has for finite numbers alone, by others.

It multiplies by the comparison of a ThresholdedRelu, takes the greatest element off in a ReduceLogSumExp, also where that is an
infinity, and does not read the signs that an IsInf asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from ..frontends.onnx_graph import attributes_of
from .onnx_computed import add_constant

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# From this opset on the axes of reductions are inputs.
_AXES_ARE_INPUTS, _SUMMED_AXES_ARE_INPUTS = 18, 13


def infinite(node: NodeProto, elem_type: int, model: ModelProto) -> list[NodeProto]:
    """Return an IsInf of one sign as a comparison with that infinity; of none there are none."""
    given = attributes_of(node)
    signs = [sign for sign, name in ((1, "detect_positive"), (-1, "detect_negative")) if given.get(name, 1)]
    if len(signs) == 2:
        return [node]
    # Without a sign, with what no number equals.
    value = np.inf * signs[0] if signs else np.nan
    name = _number(f"{node.output[0]}_infinity", value, elem_type, model)
    return [helper.make_node("Equal", [node.input[0], name], node.output, node.name)]


def thresholded(node: NodeProto, elem_type: int, model: ModelProto) -> list[NodeProto]:
    """Return a ThresholdedRelu as a choice; what is not a number is not above its threshold, and 0, as ONNX has it."""
    data, output = node.input[0], node.output[0]
    alpha, zero = (
        _number(f"{output}_{name}", value, elem_type, model)
        for name, value in (("alpha", attributes_of(node).get("alpha", 1.0)), ("zero", 0.0))
    )
    above = f"{output}_above"
    return [
        helper.make_node("Greater", [data, alpha], [above]),
        helper.make_node("Where", [above, data, zero], [output], node.name),
    ]


def log_sum_exp(node: NodeProto, elem_type: int, model: ModelProto) -> list[NodeProto]:
    """Return a ReduceLogSumExp by the greatest element that is finite, else 0."""
    given, output = attributes_of(node), node.output[0]
    if given.get("noop_with_empty_axes") and len(node.input) < 2:
        return [node]
    opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    axes = given.get("axes")
    names = {name: f"{output}_{name}" for name in ("most", "infinite", "taken", "below", "power", "sum", "log", "kept")}
    zero = _number(f"{output}_zero", 0.0, elem_type, model)
    axes_input = list(node.input[1:2])
    if axes is not None and opset >= _SUMMED_AXES_ARE_INPUTS:
        axes_input = [add_constant(model, f"{output}_axes", np.array(axes, np.int64))]

    def reduced(op_type: str, data: str, result: str, since: int) -> NodeProto:
        if opset >= since:
            return helper.make_node(op_type, [data, *axes_input], [result], keepdims=1)
        return helper.make_node(op_type, [data], [result], keepdims=1, **({} if axes is None else {"axes": axes}))

    result = output if given.get("keepdims", 1) else names["kept"]
    nodes = [
        reduced("ReduceMax", node.input[0], names["most"], _AXES_ARE_INPUTS),
        helper.make_node("IsInf", [names["most"]], [names["infinite"]]),
        helper.make_node("Where", [names["infinite"], zero, names["most"]], [names["taken"]]),
        helper.make_node("Sub", [node.input[0], names["taken"]], [names["below"]]),
        helper.make_node("Exp", [names["below"]], [names["power"]]),
        reduced("ReduceSum", names["power"], names["sum"], _SUMMED_AXES_ARE_INPUTS),
        helper.make_node("Log", [names["sum"]], [names["log"]]),
        helper.make_node("Add", [names["log"], names["taken"]], [result]),
    ]
    if result == output:
        return nodes
    if opset >= _SUMMED_AXES_ARE_INPUTS:
        squeeze = helper.make_node("Squeeze", [result, *axes_input], [output], node.name)
    else:
        squeeze = helper.make_node("Squeeze", [result], [output], node.name, **({} if axes is None else {"axes": axes}))
    return [*nodes, squeeze]


def _number(name: str, value: float, elem_type: int, model: ModelProto) -> str:
    return add_constant(model, name, np.array(value, helper.tensor_dtype_to_np_dtype(elem_type)))
