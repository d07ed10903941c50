"""Convolutions of integers as an ONNX model that quantizers surround (QDQ), which libraries make their own of; and by PyTorch's quantized tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tvmconv.fills import Arrays
from tvmconv.problem import Problem

from . import UnsupportedError, data_as, filter_as_oix

_NUMBERS = {"u8": TensorProto.UINT8, "s8": TensorProto.INT8}
_OPSET, _IR_VERSION = 21, 10


def quantized_model(problem: Problem, arrays: Arrays) -> bytes:
    """Return the model, in NCX: the data's and output's scales are 1, the filter's are the epilogue's."""
    p = problem
    if p.op != "convolution":
        raise UnsupportedError("the quantiser leaves transposed convolutions in f32")
    assert arrays.scale is not None
    filter_, zero_point = filter_as_oix(arrays.filter, p), int(p.epilogue[-1].numbers[1])
    constants = {
        "one": np.float32(1),
        "data_zero": np.array(p.zero_point, np.uint8),
        "output_zero": np.array(zero_point, np.uint8),
        "filter_u": filter_,
        "scales": arrays.scale,
        "filter_zeros": np.zeros(p.out_channels, np.int8),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["data", "one", "data_zero"], ["x"]),
        helper.make_node("DequantizeLinear", ["filter_u", "scales", "filter_zeros"], ["w"], axis=0),
    ]
    operands = ["x", "w"]
    if arrays.bias is not None:
        constants |= {"bias_u": arrays.bias, "bias_zeros": np.zeros(p.out_channels, np.int32)}
        nodes.append(helper.make_node("DequantizeLinear", ["bias_u", "scales", "bias_zeros"], ["bias"], axis=0))
        operands.append("bias")
    attributes: dict[str, Any] = {
        "strides": p.strides,
        "dilations": p.dilations,
        "pads": (*p.pads_begin, *p.pads_end),
        "group": p.groups,
    }
    nodes += [
        helper.make_node("Conv", operands, ["y"], **attributes),
        helper.make_node("QuantizeLinear", ["y", "one", "output_zero"], ["output"]),
    ]
    ends = {"data": (p.in_channels, p.in_spatial), "output": (p.out_channels, p.out_spatial)}
    shapes = {name: (p.batch, channels, *spatial) for name, (channels, spatial) in ends.items()}
    inputs, outputs = (
        [helper.make_tensor_value_info(name, _NUMBERS[dtype], shapes[name])]
        for name, dtype in (("data", p.types.data), ("output", p.types.output))
    )
    initializers = [numpy_helper.from_array(np.ascontiguousarray(each), name) for name, each in constants.items()]
    graph = helper.make_graph(nodes, "one_convolution", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    return bytes(model.SerializeToString())


def quantized_call(problem: Problem, arrays: Arrays, pads: tuple[int, ...]) -> Any:
    """Return the call of PyTorch that computes the same by oneDNN, channels last, with the filter packed."""
    import torch

    p = problem
    assert arrays.scale is not None
    torch.backends.quantized.engine = "onednn"
    data = torch.from_numpy(data_as(arrays.data, p, "NCX")).contiguous(memory_format=torch.channels_last)
    x = torch._make_per_tensor_quantized_tensor(data, 1.0, p.zero_point)
    scales = torch.from_numpy(arrays.scale.astype(np.float64))
    filter_ = torch.from_numpy(np.ascontiguousarray(filter_as_oix(arrays.filter, p)))
    w = torch._make_per_channel_quantized_tensor(filter_, scales, torch.zeros(p.out_channels, dtype=torch.int64), 0)
    bias = None if arrays.bias is None else torch.from_numpy(arrays.bias.astype(np.float32) * arrays.scale)
    packed = torch.ops.quantized.conv2d_prepack(w, bias, p.strides, pads, p.dilations, p.groups)
    zero_point = int(p.epilogue[-1].numbers[1])
    return lambda: torch.ops.quantized.conv2d(x, packed, 1.0, zero_point)
