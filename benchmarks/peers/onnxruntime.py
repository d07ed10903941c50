"""onnxruntime's CPU provider (MLAS): a model of one node, whose filter it packs when the session is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as OrtNotImplemented

from tvmconv.fills import Arrays
from tvmconv.problem import Problem

from . import Prepared, UnsupportedError, data_as, filter_as_oix, from_layout
from .integers import quantized_model

_TYPES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
# Versions that this onnxruntime and the one before it know.
_OPSET, _IR_VERSION = 22, 10


def prepare(problem: Problem, arrays: Arrays, option: str, threads: int) -> Prepared:
    """Return the run of a session that computes `problem`, in NCX, with input and output bound beforehand."""
    try:
        model = quantized_model if problem.is_quantized else _model
        session = open_session(model(problem, arrays), threads)
    except OrtNotImplemented as error:
        raise UnsupportedError(str(error)) from error
    data = data_as(arrays.data, problem, "NCX")
    output = np.empty(_ncx(problem.out_channels, problem.out_spatial, problem), data.dtype)
    binding = session.io_binding()
    binding.bind_ortvalue_input("data", ort.OrtValue.ortvalue_from_numpy(data))
    result = ort.OrtValue.ortvalue_from_numpy(output)
    binding.bind_ortvalue_output("output", result)

    def call() -> None:
        session.run_with_iobinding(binding)

    def answer() -> npt.NDArray[Any]:
        call()
        return from_layout(result.numpy(), problem, "NCX")

    return Prepared(call, answer)


def open_session(model: str | bytes, threads: int) -> ort.InferenceSession:
    """Return the session of a model, or a file."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what it says is in what it raises
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _model(problem: Problem, arrays: Arrays) -> bytes:
    p = problem
    element = _TYPES[p.dtype]
    constants = [("filter", filter_as_oix(arrays.filter, p))]
    if arrays.bias is not None:
        constants.append(("bias", arrays.bias))
    attributes = {
        "strides": p.strides,
        "dilations": p.dilations,
        "pads": (*p.pads_begin, *p.pads_end),
        "group": p.groups,
    }
    if p.op == "convolution_backprop_data":
        attributes["output_padding"] = p.output_padding
    kind = "Conv" if p.op == "convolution" else "ConvTranspose"
    node = helper.make_node(kind, ["data", *(name for name, _ in constants)], ["output"], **attributes)
    graph = helper.make_graph(
        [node],
        "one_node",
        [helper.make_tensor_value_info("data", element, _ncx(p.in_channels, p.in_spatial, p))],
        [helper.make_tensor_value_info("output", element, _ncx(p.out_channels, p.out_spatial, p))],
        [helper.make_tensor(name, element, array.shape, array.tobytes(), raw=True) for name, array in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    return bytes(model.SerializeToString())


def _ncx(channels: int, spatial: tuple[int, ...], problem: Problem) -> tuple[int, ...]:
    return (problem.batch, channels, *spatial)
