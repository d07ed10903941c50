"""PyTorch's eager convolutions, which oneDNN computes on a CPU; NXC is channels_last.

oneDNN may reorder the filter in every call. `pytorch_packed` has that done beforehand.
"""

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
    torch.set_grad_enabled(False)
    data, filter_, bias = tensors(problem, arrays)
    p = problem
    if p.op == "convolution":
        pads = symmetric_pads(p)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[p.rank - 1]
        return lambda: convolve(data, filter_, bias, p.strides, pads, p.dilations, p.groups)
    extra = _output_padding(p)
    transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[p.rank - 1]
    return lambda: transposed(data, filter_, bias, p.strides, p.pads_begin, extra, p.groups, p.dilations)


def to_numpy(result: Any, problem: Problem) -> npt.NDArray[Any]:
    """Return the tensor in the problem's layout, as float32, which holds every value of its type."""
    tensor = result.movedim(1, -1) if problem.data_format == "NXC" else result
    return tensor.float().numpy()


def tensors(problem: Problem, arrays: Arrays) -> tuple[Any, Any, Any]:
    """Return data, filter and bias as PyTorch takes them, in the memory format of the problem's data."""
    if problem.is_empty or problem.is_constant:
        raise UnsupportedError("no multiplications")
    dtype = _DTYPES[problem.dtype]
    data, filter_ = (torch.from_numpy(array.astype("float32")).to(dtype) for array in (arrays.data, arrays.filter))
    bias = None if arrays.bias is None else torch.from_numpy(arrays.bias.astype("float32")).to(dtype)
    if problem.data_format == "NXC":
        data = data.movedim(-1, 1)  # a view: its strides are those of channels_last
    if problem.filter_format == "XIO":
        filter_ = filter_.movedim(-1, 0).movedim(-1, 1)
    memory_format = torch.contiguous_format
    if problem.data_format == "NXC" and problem.rank > 1:
        memory_format = torch.channels_last if problem.rank == 2 else torch.channels_last_3d
    return data, filter_.contiguous(memory_format=memory_format), bias


def symmetric_pads(problem: Problem) -> tuple[int, ...]:
    """Return the pads of a convolution, which PyTorch puts at both sides alike."""
    p = problem
    for x, y, k, s, d, pad in zip(
        p.in_spatial, p.out_spatial, p.kernel, p.strides, p.dilations, p.pads_begin, strict=True
    ):
        # The end pads of a Problem are the least that give its output: equal pads may give the same.
        if (2 * pad + x - d * (k - 1) - 1) // s + 1 != y:
            raise UnsupportedError("asymmetric padding")
    return p.pads_begin


def _output_padding(problem: Problem) -> tuple[int, ...]:
    p = problem
    extra = []
    for x, y, k, s, d, pad in zip(
        p.in_spatial, p.out_spatial, p.kernel, p.strides, p.dilations, p.pads_begin, strict=True
    ):
        extra.append(y - (s * (x - 1) + d * (k - 1) + 1 - 2 * pad))
        if not 0 <= extra[-1] < max(s, d):
            raise UnsupportedError("an output that output_padding cannot give")
    return tuple(extra)
