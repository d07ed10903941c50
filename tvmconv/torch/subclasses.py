"""Subclasses of PyTorch's convolutions and of Linear that compute what a class that is known does.

Most change nothing but how they are made, or cast their weights to their input's type. Others pad as TensorFlow's "same":
EfficientNets and their like have them, each with code of its own, of which a graph would hold for one size. Others compute the
filter of their parameters in each call, as BiT's weight standardization does. They are recognised by what they compute.
"""

from __future__ import annotations

import copy
from itertools import zip_longest
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn
from torch.overrides import TorchFunctionMode

from .convolution import CONVOLUTIONS
from .folding import TRANSPOSED
from .same import SameConv1d, SameConv2d, SameConv3d, SameConvolution

_SAME = {nn.Conv1d: SameConv1d, nn.Conv2d: SameConv2d, nn.Conv3d: SameConv3d}
_BASES = (*_SAME, *TRANSPOSED, nn.Linear)


def with_known_classes(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose such subclasses are the known classes; the model itself, if it has none."""
    found = {path: kind for path, module in model.named_modules() if (kind := _recognised(module)) is not None}
    if not found:
        return model
    known = copy.deepcopy(model)
    with torch.no_grad():
        for path, kind in found.items():
            _become(known.get_submodule(path), kind)
    return known


def _become(module: Any, kind: type[nn.Module]) -> None:
    # By hand: attributes of its own, which the model's code may ask for, stay.
    module.casts = _casts(module)
    used = _Used()
    with used:
        _answer(module, torch.zeros(_shapes(module)[-1], dtype=module.weight.dtype))
    for name, tensor in zip(("weight", "bias"), used.tensors[0] if used.tensors else (), strict=False):
        if tensor is not getattr(module, name):
            setattr(module, name, nn.Parameter(tensor.detach().clone(), requires_grad=False))
    module.__class__ = kind
    if issubclass(kind, SameConvolution):
        module.stride, module.padding = tuple(module.stride), (0,) * len(module.stride)


class _Used(TorchFunctionMode):  # type: ignore[misc]
    """Keeps the filters and biases that convolutions are computed with."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[tuple[Any, Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute a function, and keep what it is given if it is a convolution."""
        kwargs = kwargs or {}
        if func in (*CONVOLUTIONS, functional.linear):
            given = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
            self.tensors.append((given["weight"], given.get("bias")))
        return func(*args, **kwargs)


def _recognised(module: Any) -> type[nn.Module] | None:
    """Return the class that computes what a module does, None if no other does."""
    base = next((each for each in type(module).__mro__ if each in _BASES), None)
    if base is None or type(module).__module__.startswith("torch.") or isinstance(module, SameConvolution):
        return None  # PyTorch's own subclasses belong to modules that read their weights
    if module.training or module._forward_hooks or module._forward_pre_hooks:
        return None
    if hasattr(module, "parametrizations") or not {"weight", "bias"} <= set(module._parameters) or module._modules:
        return None
    kinds: tuple[type[nn.Module], ...] = (base,)
    if base in _SAME and module.padding_mode == "zeros":
        kinds = (base, _SAME[base])
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = copy.deepcopy(module).double()
        for parameter in theirs.parameters():
            parameter.normal_()
        examples = [torch.randn(shape, dtype=torch.float64) for shape in _shapes(theirs)]
        before = [*vars(theirs).values()]
        answers = [_answer(theirs, example) for example in examples]
        if any(now is not was for now, was in zip_longest(vars(theirs).values(), before)):
            return None  # it remembers something
        for kind in kinds:
            ours = copy.deepcopy(theirs)
            _become(ours, kind)
            if all(_is_close(answer, _answer(ours, each)) for answer, each in zip(answers, examples, strict=True)):
                return kind
    return None


def _shapes(module: Any) -> list[tuple[int, ...]]:
    """Return shapes of inputs: of images, from one pixel to more than the taps span, with each remainder by the stride."""
    if isinstance(module, nn.Linear):
        return [(2, module.in_features), (1, 2, 3, module.in_features)]
    axes = [
        [1, *((k - 1) * d + 1 + more for more in range(s + 1))]
        for k, s, d in zip(module.kernel_size, module.stride, module.dilation, strict=True)
    ]
    longest = max(map(len, axes))
    return [(2, module.in_channels, *(axis[number % len(axis)] for axis in axes)) for number in range(longest)]


def _answer(module: nn.Module, data: Any) -> Any:
    """Return a module's answer, None if it refuses the data."""
    try:
        return module(data)
    except Exception:  # noqa: BLE001 - a model's own code may raise anything
        return None


def _is_close(given: Any, expected: Any) -> bool:
    if not isinstance(given, torch.Tensor) or not isinstance(expected, torch.Tensor):
        return given is None and expected is None
    return given.shape == expected.shape and given.dtype == expected.dtype and torch.allclose(given, expected)


def _casts(module: Any) -> bool:
    """Whether a module takes data of another type than its weights', as Whisper's layers do, and answers in that type."""
    other = torch.bfloat16 if module.weight.dtype == torch.float32 else torch.float32
    answer = _answer(module, torch.zeros(_shapes(module)[-1], dtype=other))
    return isinstance(answer, torch.Tensor) and answer.dtype == other
