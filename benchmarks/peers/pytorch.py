"""PyTorch's eager convolutions, which oneDNN computes on a CPU, in both memory formats.

oneDNN may reorder the filter in every call. `pytorch_packed` has that done beforehand.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
import torch.nn.functional as F

from tvmconv.fills import Arrays
from tvmconv.problem import Problem

from . import Prepared, UnsupportedError, from_layout

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_CHANNELS_LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def prepare(problem: Problem, arrays: Arrays, option: str, threads: int) -> Prepared:
    """Return the call of PyTorch that computes `problem` with tensors in the memory format `option`.

    The environment has set the number of threads.
    """
    if problem.is_quantized:
        raise UnsupportedError("quantised filters are packed")
    torch.set_grad_enabled(False)
    p = problem
    data, filter_, bias = tensors(p, arrays, option)
    if p.op == "convolution":
        pads = symmetric_pads(p)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[p.rank - 1]
        return prepared(lambda: convolve(data, filter_, bias, p.strides, pads, p.dilations, p.groups), p)
    extra = symmetric_output_padding(p)
    transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[p.rank - 1]
    return prepared(lambda: transposed(data, filter_, bias, p.strides, p.pads_begin, extra, p.groups, p.dilations), p)


def prepared(call: Any, problem: Problem) -> Prepared:
    """Return `call`, whose result is a tensor of any strides and PyTorch's order of axes."""

    def answer() -> npt.NDArray[Any]:
        try:
            result = call()
            return from_layout((result.int_repr() if result.is_quantized else result).float().numpy(), problem, "NCX")
        except RuntimeError as error:  # PyTorch's only kind
            raise UnsupportedError(str(error).partition("\n")[0]) from error

    return Prepared(call, answer)


def tensors(problem: Problem, arrays: Arrays, layout: str) -> tuple[Any, Any, Any]:
    """Return data, filter and bias as PyTorch takes them, in the memory format of `layout`."""
    dtype = _DTYPES[problem.dtype]
    data, filter_ = (torch.from_numpy(array.astype("float32")).to(dtype) for array in (arrays.data, arrays.filter))
    bias = None if arrays.bias is None else torch.from_numpy(arrays.bias.astype("float32")).to(dtype)
    if problem.data_format == "NXC":
        data = data.movedim(-1, 1)
    if problem.filter_format == "XIO":
        filter_ = filter_.movedim(-1, 0).movedim(-1, 1)
    if layout == "NCX":
        return data.contiguous(), filter_.contiguous(), bias
    if problem.rank == 1:  # no memory format of its own, but its strides can be those of channels last
        return data.movedim(1, -1).contiguous().movedim(-1, 1), filter_.contiguous(), bias
    memory_format = _CHANNELS_LAST[problem.rank]
    return data.contiguous(memory_format=memory_format), filter_.contiguous(memory_format=memory_format), bias


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


def symmetric_output_padding(problem: Problem) -> tuple[int, ...]:
    """Return what PyTorch calls output_padding, for pads that are those at the beginning on both sides."""
    p = problem
    pads = zip(p.output_padding, p.pads_begin, p.pads_end, strict=True)
    extra = tuple(more + begin - end for more, begin, end in pads)
    if not all(0 <= e < max(s, d) for e, s, d in zip(extra, p.strides, p.dilations, strict=True)):
        raise UnsupportedError("an output that output_padding cannot give")
    return extra
