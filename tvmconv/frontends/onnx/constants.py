"""Constants of ONNX models: compute and add them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import helper, numpy_helper

from .session import open_session
from .weights import array_of

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

Array = npt.NDArray[Any]


def compute(
    op_type: str, attributes: Mapping[str, Any], inputs: Sequence[Array | TensorProto | None], model: ModelProto
) -> Array:
    """Return an operator's result for constants, in a model's opset; inputs that are None are omitted.

    Raises
    ------
    ValueError
        If onnxruntime has no such operator.
    """
    names = [f"input{number}" if each is not None else "" for number, each in enumerate(inputs)]
    constants = []
    for name, each in zip(names, inputs, strict=True):
        if each is not None:
            array = each if isinstance(each, np.ndarray) else array_of(each)
            constants.append(numpy_helper.from_array(array, name))
    node = helper.make_node(op_type, names, ["output"], **attributes)
    output = helper.make_value_info("output", helper.make_tensor_type_proto(0, None))
    output.ClearField("type")
    graph = helper.make_graph([node], "computed", [], [output], constants)
    alone = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        (result,) = open_session(alone, "ORT_DISABLE_ALL").run(None, {})
    except Exception as error:  # its own have no other class
        raise ValueError(f"cannot be computed by onnxruntime: {error}") from error
    return np.asarray(result)


def add_constant(model: ModelProto, name: str, array: Array) -> str:
    """Add a constant to a model; return its name."""
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
    return name
