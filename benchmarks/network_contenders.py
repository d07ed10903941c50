"""How each library is best called with a whole network: prepared as its users would, its input and output bound ahead."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import tvmconv.torch

from .peers import UnsupportedError

OURS = "tvmconv"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
_MEMORY_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
# The newest that PyTorch's exporter writes; it has GELU as one node.
OPSET = 20


def prepare(contender: str, model: nn.Module, data: Any, dtype: str, bundle: str) -> tuple[Callable[[], Any], Any]:
    """Return the call of a contender, and the network that it calls.

    Raises
    ------
    UnsupportedError
        If the library does not compute this network in this type.
    """
    if contender == OURS:
        return _ours(model, data, dtype, bundle)
    if contender == "openvino":
        return _openvino(model, data, dtype), model
    if contender == "onnxruntime":
        return _onnxruntime(model, data, dtype), model
    return _pytorch(contender, model, data, dtype), model


def channels_last(data: Any) -> Any:
    """Return a tensor whose channels lie last in memory; in one dimension by its strides alone, there being no format."""
    if data.dim() in _MEMORY_FORMATS:
        return data.contiguous(memory_format=_MEMORY_FORMATS[data.dim()])
    return data.movedim(1, -1).contiguous().movedim(-1, 1)


def _ours(model: nn.Module, data: Any, dtype: str, bundle: str) -> tuple[Callable[[], Any], Any]:
    data = channels_last(data)
    cast = None if dtype == "f32" else DTYPES[dtype]
    fast = tvmconv.torch.optimize(model, data, bundle=bundle, dtype=cast, progress=None)
    data = data.to(DTYPES[dtype])
    return lambda: fast(data), fast


def _pytorch(contender: str, model: nn.Module, data: Any, dtype: str) -> Callable[[], Any]:
    model, data = model.to(DTYPES[dtype]), data.to(DTYPES[dtype])
    if contender != "pytorch_ncx":
        data = channels_last(data)
        if data.dim() in _MEMORY_FORMATS:
            model = model.to(memory_format=_MEMORY_FORMATS[data.dim()])
    called: Any = model
    if contender == "torch_compile":
        from torch._inductor import config

        config.freezing = True
        called = torch.compile(model)
    return lambda: called(data)


def _openvino(model: nn.Module, data: Any, dtype: str) -> Callable[[], Any]:
    import openvino as ov

    from .peers.openvino import call_of, compile_network

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = ov.convert_model(model, example_input=data, input=list(data.shape))
    compiled = compile_network(converted, dtype, torch.get_num_threads())
    _check_precision(compiled, dtype)
    request = compiled.create_infer_request()
    request.set_input_tensor(ov.Tensor(data.contiguous().numpy()))

    run = call_of(request)

    def call() -> Any:
        run()
        return tuple(request.get_output_tensor(number).data for number in range(len(compiled.outputs)))

    return call


def _check_precision(compiled: Any, dtype: str) -> None:
    """Refuse a model most of whose convolutions OpenVINO computes in another type than it was asked for."""
    nodes = (node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops())
    types = [str(info["runtimePrecision"].astype(str)) for info in nodes if info["layerType"].astype(str) in ("Convolution", "Deconvolution")]  # fmt: skip
    others = [each for each in types if each != dtype]
    if 2 * len(others) > len(types):
        raise UnsupportedError(f"it computes {len(others)} of {len(types)} convolutions in {others[0]}")


def _onnxruntime(model: nn.Module, data: Any, dtype: str) -> Callable[[], Any]:
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import InvalidGraph, NotImplemented

    from .peers.onnxruntime import open_session

    exported = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that needs no further package is the older one
        torch.onnx.export(
            model.to(DTYPES[dtype]), (data.to(DTYPES[dtype]),), exported, dynamo=False, opset_version=OPSET
        )
    try:
        session = open_session(exported.getvalue(), torch.get_num_threads())
    except (InvalidGraph, NotImplemented) as error:
        if dtype == "f32":
            raise
        raise UnsupportedError(f"its CPU provider has no convolution of {dtype}") from error
    binding = session.io_binding()
    binding.bind_cpu_input(session.get_inputs()[0].name, data.contiguous().numpy())
    outputs = []
    for each in session.get_outputs():
        outputs.append(onnxruntime.OrtValue.ortvalue_from_shape_and_type(each.shape, "float32", "cpu"))
        binding.bind_ortvalue_output(each.name, outputs[-1])

    def call() -> Any:
        session.run_with_iobinding(binding)
        return tuple(output.numpy() for output in outputs)

    return call
