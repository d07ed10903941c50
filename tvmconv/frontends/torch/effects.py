"""ATen operations that follow convolutions in exported programs, and their effects."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import torch

from ...epilogue import Step
from ..following import Effect, FollowedGraph, Linear, Slopes, Sum, affine, per_channel
from .nodes import arguments

# Steps by an operation's name, with the arguments of their numbers.
_STEPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "relu": ("relu", ()),
    "leaky_relu": ("leaky", ("negative_slope",)),
    "elu": ("elu", ("alpha",)),
    "sigmoid": ("sigmoid", ()),
    "tanh": ("tanh", ()),
    "silu": ("silu", ()),
    "hardswish": ("hardswish", ()),
    "hardtanh": ("clip", ("min_val", "max_val")),
    "clamp": ("clip", ("min", "max")),
}
_FIXED = {"relu6": Step("clip", (0.0, 6.0)), "hardsigmoid": Step("hardsigmoid", (1 / 6, 0.5))}
_GELU = {"none": Step("gelu"), "tanh": Step("gelu_tanh")}
_NORMS = ("aten.batch_norm.default", "aten._native_batch_norm_legit_no_training.default")
# Functions of each element by an operation's name.
_ARITHMETIC = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide"}
_FUNCTIONS = _ARITHMETIC | {
    "pow": "power", "neg": "negative", "maximum": "maximum", "minimum": "minimum", "exp": "exp", "erf": "erf",
    "to": "same", "_to_copy": "same", "clone": "same",
}  # fmt: skip
DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_PRELUS = ("prelu", "_prelu_kernel")
Tensors = Mapping[str, tuple[tuple[int, ...], Any]]


class Operations(FollowedGraph):
    """Graph of a program for :func:`~tvmconv.frontends.following.follow`.

    Parameters
    ----------
    module
        The program's.
    tensors
        The shapes and types of its nodes' results, by the nodes' names.
    rank
        The number of axes of a batch of images; a single image has one less.
    dtype
        The convolution's type.
    """

    def __init__(self, module: Any, tensors: Tensors, rank: int, dtype: str) -> None:
        self._module, self._tensors, self._rank, self._dtype = module, tensors, rank, dtype

    def readers(self, op: Any) -> Sequence[Any]:
        """Return the nodes that read another's result."""
        return list(op.users)

    def name(self, op: Any) -> str:
        """Return a node's name."""
        return str(op.name)

    def function(self, op: Any) -> tuple[str | Step, Sequence[Any]] | None:
        """Return a node's elementwise function and its operands; None if it has none, or writes to a tensor with other readers."""
        kind = _kind(op)
        if not kind or op.name not in self._tensors or (_writes(op) and len(op.args[0].users) > 1):
            return None
        if (step := self._step(kind, op)) is not None:
            return step, op.args[:1]
        name = _FUNCTIONS.get(kind)
        if name == "same":  # unless it converts to a type but f32 or the convolution's, which changes numbers
            return (name, op.args[:1]) if self.dtype(op) in ("f32", self._dtype) else None
        given = arguments(op)
        if name is None or given.get("alpha", 1) != 1 or given.get("rounding_mode") is not None:
            return None
        return name, [each if (number := self._number(each)) is None else number for each in op.args]

    def is_alike(self, op: Any, other: Any) -> bool:
        """Return whether two nodes' results have the same type and shape."""
        return self._tensors.get(op.name) == self._tensors.get(other.name)

    def dtype(self, op: Any) -> str:
        """Return the type of a node's result."""
        return DTYPES.get(self._tensors[op.name][1], "")

    def effect(self, op: Any, read: Any, channels: int) -> Effect | None:
        """Return a node's effect on the result of `read`; None if no kernel supports it."""
        if op.op != "call_function":
            return None
        if op.target is operator.getitem:  # of a norm's three results, only the first may be read
            normed = str(read.target) in _NORMS and op.args[1] == 0
            return Linear(None, None) if normed else None
        kind = _kind(op)
        if kind in _ARITHMETIC:
            return self._arithmetic(op, read, channels)
        if not op.args or op.args[0] is not read:
            return None
        # For a single image, these operators take its rows for channels.
        sizes = (1, channels) if len(self._tensors[read.name][0]) == self._rank else (1,)
        if str(op.target) in _NORMS:
            return self._norm(arguments(op)) if len(sizes) > 1 else None
        if kind not in _PRELUS:
            return None
        slope = self._value(op.args[1])
        if slope is None or slope.size not in sizes:
            return None
        return Slopes(lambda: slope.reshape(channels).astype(np.float64))

    def _arithmetic(self, op: Any, read: Any, channels: int) -> Effect | None:
        one, other = op.args[:2]
        is_first, name, given = one is read, _ARITHMETIC[_kind(op)], arguments(op)
        if not is_first:
            one, other = other, one
            if _writes(op):
                return None  # to the other operand
        if one is not read or other is read or given.get("alpha", 1) != 1 or given.get("rounding_mode") is not None:
            return None
        if self._tensors.get(op.name) != self._tensors[read.name]:
            return None  # of another shape or type
        numbers = np.array(other) if isinstance(other, (int, float)) else self._value(other)
        if numbers is not None:
            vector = per_channel(numbers, channels, self._rank)
            return None if vector is None else affine(name, lambda: vector, is_first)
        alike = isinstance(other, torch.fx.Node) and self._tensors.get(other.name) == self._tensors[read.name]
        return Sum(other) if alike and name == "add" else None

    def _norm(self, given: Mapping[str, Any]) -> Effect | None:
        """Return the effect of a BatchNorm with fixed statistics."""
        mean, variance = (self._value(given[name]) for name in ("running_mean", "running_var"))
        if given.get("training") or mean is None or variance is None:
            return None
        factor = 1 / np.sqrt(variance.astype(np.float64) + given["eps"])
        shift: np.ndarray = -mean.astype(np.float64) * factor
        for name in ("weight", "bias"):
            if given[name] is not None:
                value = self._value(given[name])
                if value is None:
                    return None
                factor, shift = (factor * value, shift * value) if name == "weight" else (factor, shift + value)
        return Linear(lambda: factor, lambda: shift)

    def _step(self, kind: str, op: Any) -> Step | None:
        """Return the step of an activation with fixed numbers."""
        if kind in _FIXED:
            return _FIXED[kind]
        if kind in _PRELUS:
            slope = self._number(op.args[1])
            return None if slope is None else Step("leaky", (slope,))
        given = arguments(op)
        if kind == "gelu":
            return _GELU.get(given["approximate"])
        if kind not in _STEPS or any(given.get(name, 1) != 1 for name in ("scale", "input_scale")):
            return None
        name, names = _STEPS[kind]
        none = {"min": -inf, "max": inf}
        numbers = [none[each] if given[each] is None else given[each] for each in names]
        return Step(name, tuple(map(float, numbers))) if all(isinstance(n, (int, float)) for n in numbers) else None

    def _number(self, value: Any) -> float | None:
        """Return a number, or that of a tensor of one element; None for anything else."""
        numbers = np.array(value) if isinstance(value, (int, float)) else self._value(value)
        return None if numbers is None or numbers.size != 1 else float(numbers.reshape(()))

    def _value(self, node: Any) -> np.ndarray | None:
        """Return a fixed tensor of the program, in f32 or f64; None if it is computed."""
        if getattr(node, "op", "") != "get_attr":
            return None
        tensor = torch.fx.Interpreter(self._module).fetch_attr(node.target).detach()
        numbers: np.ndarray = (tensor if tensor.dtype == torch.float64 else tensor.float()).numpy()
        return numbers


def _kind(op: Any) -> str:
    """Return an operation's name without overload and in-place mark: ``add`` for ``aten.add_.Tensor``."""
    parts = str(op.target).split(".")
    return parts[1].rstrip("_") if op.op == "call_function" and parts[0] == "aten" and len(parts) > 1 else ""


def _writes(op: Any) -> bool:
    return str(op.target).split(".")[1].endswith("_")
