"""OpenVINO's CPU plugin: a model of one operation, whose filter it packs when it compiles the model.

Data and output have the layout that is asked for; which one it computes in is its own choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
from openvino import opset13 as ops
from openvino.preprocess import PrePostProcessor

from tvmconv.fills import Arrays
from tvmconv.problem import Problem

from . import Prepared, UnsupportedError, data_as, filter_as_oix, from_layout
from .integers import quantized_model

_CAPABILITY = {"f32": "FP32", "f16": "FP16", "bf16": "BF16"}
_LAYOUTS = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}


def prepare(problem: Problem, arrays: Arrays, option: str, threads: int) -> Prepared:
    """Return the request that computes `problem` with data and output in the layout `option`."""
    # Without f16 it would take bf16, which has not its precision; then f32 is what holds the type.
    dtype = problem.dtype if not problem.is_quantized and has(problem.dtype) else "f32"
    compiled = compile_model(_model(problem, arrays, option), dtype, threads)
    request = compiled.create_infer_request()
    data = data_as(arrays.data, problem, option)
    request.set_input_tensor(_tensor(data, problem))
    call = call_of(request)

    def answer() -> npt.NDArray[Any]:
        call()
        result = request.get_output_tensor().data
        return from_layout(result.view(data.dtype), problem, option)

    # A tensor does not keep the array that it is a view of.
    call.memory = data  # type: ignore[attr-defined]
    return Prepared(call, answer)


def has(dtype: str) -> bool:
    """Return whether it computes in a type on this CPU."""
    return _CAPABILITY[dtype] in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def compile_model(model: Any, dtype: str, threads: int) -> Any:
    """Return a model, or a file, compiled for one call after the other in a type."""
    hints = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": dtype,
    }
    return ov.Core().compile_model(model, "CPU", hints)


def compile_network(model: Any, dtype: str, threads: int) -> Any:
    """Return the same; raise UnsupportedError where it would compute in another type."""
    if not has(dtype):
        raise UnsupportedError(f"it has no {dtype} on this CPU")
    return compile_model(model, dtype, threads)


def call_of(request: Any) -> Callable[[], None]:
    """Return what computes a request."""

    def call() -> None:
        request.start_async()  # 10 microseconds less than infer(), which looks for inputs to copy
        request.wait()

    return call


def _model(problem: Problem, arrays: Arrays, layout: str) -> Any:
    if problem.is_quantized:
        return _in_layout(ov.Core().read_model(quantized_model(problem, arrays)), problem, layout)
    p = problem
    data = ops.parameter([p.batch, p.in_channels, *p.in_spatial], _element(p))
    filter_ = filter_as_oix(arrays.filter, p)
    if p.groups > 1:
        filter_ = filter_.reshape(p.groups, filter_.shape[0] // p.groups, *filter_.shape[1:])
    constant = _constant(filter_, p)
    begin, end = list(p.pads_begin), list(p.pads_end)
    strides, dilations = list(p.strides), list(p.dilations)
    if p.op == "convolution":
        convolve = ops.group_convolution if p.groups > 1 else ops.convolution
        node = convolve(data, constant, strides, begin, end, dilations)
    else:
        transposed = ops.group_convolution_backprop_data if p.groups > 1 else ops.convolution_backprop_data
        node = transposed(
            data,
            constant,
            strides,
            pads_begin=begin,
            pads_end=end,
            dilations=dilations,
            output_padding=list(p.output_padding),
        )
    if arrays.bias is not None:
        node = ops.add(node, _constant(arrays.bias.reshape(1, -1, *(1 for _ in p.kernel)), p))
    return _in_layout(ov.Model([node], [data]), p, layout)


def _in_layout(model: Any, problem: Problem, layout: str) -> Any:
    """Return a model in NCX with data and output in `layout`."""
    if layout == "NXC":
        outside, inside = (ov.Layout(text) for text in _LAYOUTS[problem.rank])
        processor = PrePostProcessor(model)
        for end_ in (processor.input(), processor.output()):
            end_.tensor().set_layout(outside)
            end_.model().set_layout(inside)
        model = processor.build()
    return model


def _element(problem: Problem) -> Any:
    return getattr(ov.Type, problem.types.data)


def _tensor(array: npt.NDArray[Any], problem: Problem) -> Any:
    """Return a view of `array`; for bfloat16, which OpenVINO does not know from NumPy, of its bits."""
    bits = array.view(np.uint16) if problem.dtype == "bf16" else array
    return ov.Tensor(bits, ov.Shape(array.shape), _element(problem))


def _constant(array: npt.NDArray[Any], problem: Problem) -> Any:
    tensor = ov.Tensor(_element(problem), ov.Shape(array.shape))
    _tensor(array, problem).copy_to(tensor)
    return ops.constant(tensor)
