"""oneDNN's convolutions with the filter in the layout that oneDNN likes best, as `torch.compile` freezes a model to."""

from __future__ import annotations

import torch

from tvmconv.fills import Arrays
from tvmconv.problem import Problem

from . import Prepared, UnsupportedError
from .integers import quantized_call
from .pytorch import prepared, symmetric_output_padding, symmetric_pads, tensors


def prepare(problem: Problem, arrays: Arrays, option: str, threads: int) -> Prepared:
    """Return the call of oneDNN that computes `problem` with data in the memory format `option`."""
    p, onednn = problem, torch.ops.mkldnn
    if p.rank != 2:
        raise UnsupportedError("PyTorch packs filters of 2-D convolutions only")
    if p.is_quantized and p.op != "convolution":
        raise UnsupportedError("oneDNN packs no quantised filters of transposed convolutions")
    if p.is_quantized:
        return prepared(quantized_call(p, arrays, symmetric_pads(p)), p)
    supported = {"f16": onednn._is_mkldnn_fp16_supported, "bf16": onednn._is_mkldnn_bf16_supported}
    if p.dtype in supported and not supported[p.dtype]():
        raise UnsupportedError(f"oneDNN packs no filters of {p.dtype} on this CPU")
    torch.set_grad_enabled(False)
    data, filter_, bias = tensors(p, arrays, option)
    size = list(data.shape)
    if p.op == "convolution":
        pads = symmetric_pads(p)
        packed = onednn._reorder_convolution_weight(filter_, pads, p.strides, p.dilations, p.groups, size)
        return prepared(
            lambda: onednn._convolution_pointwise(
                data, packed, bias, pads, p.strides, p.dilations, p.groups, "none", [], ""
            ),
            p,
        )
    pads, extra = p.pads_begin, symmetric_output_padding(p)
    packed = onednn._reorder_convolution_transpose_weight(filter_, pads, extra, p.strides, p.dilations, p.groups, size)
    return prepared(
        lambda: onednn._convolution_transpose_pointwise(
            data, packed, bias, pads, extra, p.strides, p.dilations, p.groups, "none", [], ""
        ),
        p,
    )
