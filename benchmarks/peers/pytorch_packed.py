"""oneDNN's convolutions with the filter in the layout that oneDNN likes best, as `torch.compile` freezes a model to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tvmconv.fills import Arrays
from tvmconv.problem import Problem

from . import UnsupportedError
from .pytorch import symmetric_pads, tensors
from .pytorch import to_numpy as to_numpy


def prepare(problem: Problem, arrays: Arrays) -> Callable[[], Any]:
    """Return a call of oneDNN that computes `problem`."""
    p = problem
    if p.op != "convolution" or p.rank != 2:
        raise UnsupportedError("PyTorch packs filters of 2-D convolutions only")
    torch.set_grad_enabled(False)
    data, filter_, bias = tensors(p, arrays)
    pads, onednn = symmetric_pads(p), torch.ops.mkldnn
    packed = onednn._reorder_convolution_weight(filter_, pads, p.strides, p.dilations, p.groups, list(data.shape))
    return lambda: onednn._convolution_pointwise(
        data, packed, bias, pads, p.strides, p.dilations, p.groups, "none", [], ""
    )
