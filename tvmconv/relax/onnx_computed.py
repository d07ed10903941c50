"""One ONNX operator computed by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

Array = npt.NDArray[Any]


def computed(
    op_type: str, attributes: Mapping[str, Any], inputs: Sequence[Array | TensorProto | None], model: ModelProto
) -> Array:
    """Return what an operator, as it is in the opset of a model, makes of constants; an input that is None is left out.

    Raises
    ------
    ValueError
        If onnxruntime has no such operator.
    """
    names = [f"input{number}" if each is not None else "" for number, each in enumerate(inputs)]
    constants = []
    for name, each in zip(names, inputs, strict=True):
        if each is not None:
            array = each if isinstance(each, np.ndarray) else numpy_helper.to_array(each)
            constants.append(numpy_helper.from_array(array, name))
    node = helper.make_node(op_type, names, ["output"], **attributes)
    output = helper.make_value_info("output", helper.make_tensor_type_proto(0, None))
    output.ClearField("type")
    graph = helper.make_graph([node], "computed", [], [output], constants)
    alone = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is raised
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(alone.SerializeToString(), options, providers=["CPUExecutionProvider"])
        (result,) = session.run(None, {})
    except Exception as error:  # its own have no other class
        raise ValueError(f"is one that onnxruntime cannot compute: {error}") from error
    return np.asarray(result)
