"""`tvmconv::convolution`: one operator for all layers, which torch.compile and torch.export see as a whole.

What it computes is in its arguments; with which kernel, is found when it runs, among the bundles that are open. Where there
is none PyTorch computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from ..errors import TvmconvError
from .calls import Calls, Notice
from .convolution import Convolution

LIBRARY = torch.library.Library("tvmconv", "FRAGMENT")
LIBRARY.define(
    "convolution(Tensor data, Tensor weight, Tensor? bias, Tensor? residual, bool transposed, int[] strides,"
    " int[] pads_begin, int[] pads_end, int[] dilations, int[] output_padding, int groups, str epilogue,"
    " Tensor? slope=None) -> Tensor"
)
_NAME = "tvmconv::convolution"
_NOTICE = Notice()
# For each weight, the convolutions that it was given to.
_CALLS: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


@lru_cache(maxsize=1024)
def _convolution(transposed: bool, *rest: Any) -> Convolution:
    return Convolution(transposed, *rest)


def _described(transposed: bool, *arguments: Any) -> tuple[Convolution, Any]:
    """Return what the arguments after the tensors say, and the slope, which is among them if it is given."""
    *axes, groups, epilogue = arguments[:7]
    return _convolution(transposed, *map(tuple, axes), groups, epilogue), (*arguments[7:], None)[0]


def _compute(data: Any, weight: Any, bias: Any, residual: Any, *arguments: Any) -> Any:  # the rest is as in the schema
    convolution, slope = _described(*arguments)
    _check(convolution, data, weight, residual, slope)
    by_convolution = _CALLS.get(weight)
    if by_convolution is None:
        by_convolution = _CALLS.setdefault(weight, {})
    calls = by_convolution.get(convolution)
    if calls is None:
        calls = by_convolution.setdefault(convolution, Calls(convolution, convolution.name, _NOTICE))
    output = calls(data, weight, bias, residual, slope)
    if output.stride() == convolution.layout.strides(output.shape):
        return output
    return _empty(output, convolution, output.shape).copy_(output)


def _fake(data: Any, weight: Any, bias: Any, residual: Any, *arguments: Any) -> Any:
    convolution, slope = _described(*arguments)
    _check(convolution, data, weight, residual, slope)
    return _empty(data, convolution, convolution.output_shape(data.shape, weight.shape))


def _empty(like: Any, convolution: Convolution, shape: Sequence[Any]) -> Any:
    layout = convolution.layout
    return layout.from_channels_last(like.new_empty(layout.shape_last(shape)))


def _check(convolution: Convolution, data: Any, weight: Any, residual: Any, slope: Any) -> None:
    torch._check(
        convolution.takes(data.dim()), lambda: f"data has shape {list(data.shape)}; it needs a batch dimension"
    )
    asked = any(step.name == "prelu" for step in convolution.steps)
    torch._check(asked == (slope is not None), lambda: f"slope is for prelu, and epilogue {convolution.epilogue!r}")
    if slope is not None:
        channels = convolution.output_shape(data.shape, weight.shape)[convolution.layout.axis]
        torch._check(tuple(slope.shape) == (channels,), lambda: f"slope must have {channels} numbers")
    if residual is not None:
        expected = convolution.output_shape(data.shape, weight.shape)
        torch._check(
            tuple(residual.shape) == tuple(expected),
            lambda: f"residual has shape {list(residual.shape)}; it must have the output's, {list(expected)}",
        )


def _refuse(context: Any, *gradients: Any) -> Any:
    raise TvmconvError(
        "tvmconv's kernels compute no gradients; call the layer, which takes PyTorch's convolution where gradients are needed,"
        " or compute under torch.no_grad()"
    )


for _device in ("CPU", "CUDA"):
    LIBRARY.impl("convolution", _compute, _device)
torch.library.register_fake(_NAME, _fake, lib=LIBRARY)
torch.library.register_autograd(_NAME, _refuse, lib=LIBRARY)
convolution = torch.ops.tvmconv.convolution.default
