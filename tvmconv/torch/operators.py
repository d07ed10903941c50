"""PyTorch's operators that a plan may contain: none has an effect but its result, so it may also be computed twice.

Of some the result is new memory; of the others, which are asked for by :func:`may_be_view`, it may be what they read.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from .decisions import Decision
from .pads import Pad
from .sized import CutBySize, PadBySize

MODULES = (
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm, nn.LayerNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
    nn.Upsample, nn.UpsamplingNearest2d, nn.UpsamplingBilinear2d,
    nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d, nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d,
    nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d,
    nn.ReplicationPad1d, nn.ReplicationPad2d, nn.ReplicationPad3d, nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d, Pad,
    nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.Sigmoid, nn.Tanh, nn.Hardsigmoid, nn.SiLU,
    nn.Hardswish, nn.GELU, nn.Mish, nn.Softplus, nn.Softmax, nn.GLU,
)  # fmt: skip
# Of these each element depends on one of the first tensor alone, beside numbers and parameters.
ELEMENTWISE = (
    functional.relu, functional.relu6, functional.hardtanh, functional.leaky_relu, functional.elu, functional.sigmoid,
    functional.tanh, functional.hardsigmoid, functional.silu, functional.hardswish, functional.gelu, functional.mish,
    functional.softplus, torch.relu, torch.sigmoid, torch.tanh, "relu", "sigmoid", "tanh",
)  # fmt: skip
FUNCTIONS = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.matmul,
    operator.mod, operator.pow, operator.neg,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
    torch.add, torch.sub, torch.mul, torch.div, torch.matmul, torch.bmm, torch.cat, torch.stack, torch.mean, torch.sum,
    torch.relu, torch.sigmoid, torch.tanh, torch.exp, torch.softmax, torch.clamp, torch.pow, torch.sqrt, torch.rsqrt,
    functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d,
    functional.max_pool1d, functional.max_pool2d, functional.max_pool3d,
    functional.adaptive_avg_pool1d, functional.adaptive_avg_pool2d, functional.adaptive_avg_pool3d,
    functional.batch_norm, functional.group_norm, functional.layer_norm, functional.normalize,
    functional.scaled_dot_product_attention, functional.interpolate, functional.pad,
    functional.relu, functional.relu6, functional.hardtanh, functional.leaky_relu, functional.prelu, functional.elu,
    functional.sigmoid, functional.tanh, functional.hardsigmoid, functional.silu, functional.hardswish, functional.gelu,
    functional.mish, functional.softplus, functional.softmax, functional.glu, functional.log_softmax,
    torch.sin, torch.cos, torch.abs, torch.square, torch.log, torch.maximum, torch.minimum, torch.addcmul, torch.var,
    torch.roll, torch.flip,
)  # fmt: skip
METHODS = (
    "add", "sub", "mul", "div", "matmul", "mean", "sum", "relu", "sigmoid", "tanh", "exp", "softmax", "clamp", "clone",
    "pow", "sqrt", "rsqrt", "sin", "cos", "abs", "square", "log", "norm", "var", "repeat", "addcmul", "masked_fill",
    "log_softmax", "roll", "flip",
)  # fmt: skip
# Dropout gives what it is given, in inference.
_VIEW_MODULES = (
    nn.Flatten, nn.Unflatten, nn.Identity, nn.PixelShuffle, nn.PixelUnshuffle, nn.ChannelShuffle,
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, PadBySize, CutBySize,
)  # fmt: skip
_VIEW_NAMES = ("permute", "transpose", "movedim", "flatten", "unflatten", "reshape", "unsqueeze", "squeeze", "narrow",
               "select", "chunk", "split", "unbind")  # fmt: skip
# The last are of numbers.
_VIEW_FUNCTIONS = (
    getattr, operator.getitem, functional.pixel_shuffle, functional.pixel_unshuffle,
    *(getattr(torch, name) for name in _VIEW_NAMES), torch._assert, math.ceil, math.floor, max, min, round, int,
)  # fmt: skip
# `size`, `dim` and `numel` are numbers.
_VIEW_METHODS = (*_VIEW_NAMES, "view", "view_as", "reshape_as", "expand", "expand_as", "contiguous", "to", "float", "type",
                 "type_as", "detach", "size", "dim", "numel")  # fmt: skip
_MODES = ("out", "inplace", "return_indices", "training", "dropout_p")


def has_no_effect(node: Any, modules: dict[str, nn.Module]) -> bool:
    """Whether a node is an operator that leaves all as it is, and whose result is new, or a view of what it reads."""
    if node.op == "call_module":
        module = modules[node.target]
        known = type(module) in (*MODULES, *_VIEW_MODULES, Decision) and not module.training
        return known and not any(getattr(module, mode, False) for mode in ("inplace", "return_indices"))
    if not may_be_view(node, modules) and not (
        (node.op == "call_function" and node.target in FUNCTIONS)
        or (node.op == "call_method" and node.target in METHODS)
    ):
        return False
    # A True may be one of these by its place.
    return not any(node.kwargs.get(mode) for mode in _MODES) and not any(arg is True for arg in node.args)


def may_be_view(node: Any, modules: dict[str, nn.Module]) -> bool:
    """Whether a node is an operator of those whose result may be a view of what it reads, or that itself."""
    if node.op == "call_module":
        return type(modules[node.target]) in _VIEW_MODULES
    if node.op == "call_method":
        return node.target in _VIEW_METHODS
    return node.op == "call_function" and node.target in _VIEW_FUNCTIONS


def is_question(node: Any) -> bool:
    """Whether a node asks for a number of a tensor's shape, for its type or its device."""
    if node.op == "call_method":
        return node.target in ("size", "dim", "ndimension", "numel")
    asked = ("ndim", "shape", "dtype", "device")
    return node.op == "call_function" and node.target is getattr and node.args[1] in asked


def option(node: Any, position: int, name: str, default: Any = None) -> Any:
    """Return what a node's function is given by its place or by its name."""
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)
