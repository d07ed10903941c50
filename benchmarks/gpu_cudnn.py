"""cuDNN's convolutions through PyTorch, on the same arrays as tvmconv's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tvmconv.problem import Problem

from .peers import UnsupportedError
from .peers.pytorch import symmetric_output_padding, symmetric_pads

# PyTorch's two memory formats. A rank without a format of its own for channels last has its strides.
FORMATS = ("channels_last", "contiguous")


def use_cudnn(*, tf32: bool) -> None:
    """Let cuDNN try its algorithms and keep the fastest of each shape, with TF32 only if `tf32`."""
    torch.set_grad_enabled(False)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32


def prepare(problem: Problem, arrays: tuple[Any, Any, Any], memory_format: str) -> Callable[[], Any]:
    """Return PyTorch's call for data, filter and bias laid out as `problem` says.

    Raises
    ------
    UnsupportedError
        If PyTorch has no call for the problem.
    """
    p = problem
    data, filter_, bias = arrays
    if p.data_format == "NXC":
        data = data.movedim(-1, 1)
    if p.filter_format == "XIO":
        filter_ = filter_.movedim(-1, 0).movedim(-1, 1)
    data, filter_ = (_lay_out(tensor, memory_format) for tensor in (data, filter_))
    if p.op == "convolution":
        convolve = (F.conv1d, F.conv2d, F.conv3d)[p.rank - 1]
        before, pads = _split_pads(p)
        if not any(before):
            return lambda: convolve(data, filter_, bias, p.strides, pads, p.dilations, p.groups)
        return lambda: convolve(F.pad(data, before), filter_, bias, p.strides, pads, p.dilations, p.groups)
    extra = symmetric_output_padding(p)
    transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[p.rank - 1]
    return lambda: transposed(data, filter_, bias, p.strides, p.pads_begin, extra, p.groups, p.dilations)


def _split_pads(problem: Problem) -> tuple[list[int], tuple[int, ...]]:
    """Return the pads that `F.pad` adds before, as in causal networks, and cuDNN's symmetric pads."""
    p = problem
    try:
        return [0, 0] * p.rank, symmetric_pads(p)
    except UnsupportedError:
        both = tuple(map(min, p.pads_begin, p.pads_end))
    ends = [(begin - pad, end - pad) for begin, end, pad in zip(p.pads_begin, p.pads_end, both, strict=True)]
    return [extra for end in reversed(ends) for extra in end], both  # the last axis first


def in_layout(output: Any, problem: Problem) -> Any:
    """Return PyTorch's output with its axes in the order of the problem's."""
    return output.movedim(1, -1) if problem.data_format == "NXC" else output


def _lay_out(tensor: Any, memory_format: str) -> Any:
    """Return the tensor in a memory format; without a copy if it has it."""
    if memory_format == "contiguous":
        return tensor.contiguous()
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)
