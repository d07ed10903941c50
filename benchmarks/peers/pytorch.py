"""PyTorch's eager convolutions, which oneDNN computes on a CPU; NXC data is channels_last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
import torch
import torch.nn.functional as F

from tvmconv.fills import Arrays
from tvmconv.problem import Problem

from . import UnsupportedError

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def prepare(problem: Problem, arrays: Arrays) -> Callable[[], Any]:
    """Return a call of PyTorch that computes `problem`."""
    if problem.is_empty or problem.is_constant:
        raise UnsupportedError("no multiplications")
    torch.set_grad_enabled(False)
    dtype = _DTYPES[problem.dtype]
    data, filter_ = (torch.from_numpy(array.astype("float32")).to(dtype) for array in (arrays.data, arrays.filter))
    bias = None if arrays.bias is None else torch.from_numpy(arrays.bias.astype("float32")).to(dtype)
    if problem.data_format == "NXC":
        data = data.movedim(-1, 1)  # a view: PyTorch calls these strides channels_last
    if problem.filter_format == "XIO":
        # Once, before the clock: the filter is constant where a model runs.
        filter_ = filter_.movedim(-1, 0).movedim(-1, 1)
        filter_ = filter_.contiguous(memory_format=_memory_format(problem))
    call = _convolution if problem.op == "convolution" else _backprop_data
    compute = call(problem, data, filter_, bias)
    if problem.data_format == "NXC":
        return lambda: compute().movedim(1, -1)
    return compute


def to_numpy(result: Any) -> npt.NDArray[Any]:
    """Return the tensor as float32, which holds every value of its type."""
    return result.float().numpy()


def _memory_format(problem: Problem) -> torch.memory_format:
    if problem.data_format == "NCX" or problem.rank == 1:
        return torch.contiguous_format
    return torch.channels_last if problem.rank == 2 else torch.channels_last_3d


def _convolution(problem: Problem, data: Any, filter_: Any, bias: Any) -> Callable[[], Any]:
    p = problem
    pads = p.pads_begin
    # The least end pads are canonical; PyTorch pads both sides alike, which is the same as long as the
    # extra at the end adds no output.
    for x, y, k, s, d, pad in zip(p.in_spatial, p.out_spatial, p.kernel, p.strides, p.dilations, pads, strict=True):
        if (2 * pad + x - d * (k - 1) - 1) // s + 1 != y:
            raise UnsupportedError("asymmetric padding")
    function = (F.conv1d, F.conv2d, F.conv3d)[p.rank - 1]
    return lambda: function(data, filter_, bias, p.strides, pads, p.dilations, p.groups)


def _backprop_data(problem: Problem, data: Any, filter_: Any, bias: Any) -> Callable[[], Any]:
    p = problem
    extra = []
    for x, y, k, s, d, pad in zip(
        p.in_spatial, p.out_spatial, p.kernel, p.strides, p.dilations, p.pads_begin, strict=True
    ):
        extra.append(y - (s * (x - 1) + d * (k - 1) + 1 - 2 * pad))
        if not 0 <= extra[-1] < max(s, d):
            raise UnsupportedError("padding that output_padding cannot say")
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[p.rank - 1]
    return lambda: function(data, filter_, bias, p.strides, p.pads_begin, extra, p.groups, p.dilations)
