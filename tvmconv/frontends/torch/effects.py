"""ATen's operations that follow convolutions in exported programs, and what they do."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import torch

from ...epilogue import Step
from ..following import Activation, Effect, Gates, Linear, Sum, per_channel
from .nodes import arguments

# By an operation's name: the step, and the arguments that are its numbers.
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
Tensors = Mapping[str, tuple[tuple[int, ...], Any]]


class Operations(Gates):
    """The graph of a program, as :func:`~tvmconv.frontends.following.follow` reads it.

    Parameters
    ----------
    module
        The program's.
    tensors
        The shapes and types of what its nodes compute, by their names.
    rank
        The number of axes of a batch of images; an image alone has one less.
    """

    def __init__(self, module: Any, tensors: Tensors, rank: int) -> None:
        self._module, self._tensors, self._rank = module, tensors, rank

    def readers(self, op: Any) -> Sequence[Any]:
        """Return the nodes that read what one computes."""
        return list(op.users)

    def name(self, op: Any) -> str:
        """Return a node's name."""
        return str(op.name)

    def is_product(self, op: Any, one: Any, other: Any) -> bool:
        """Whether a node multiplies what two others compute."""
        return _kind(op) == "mul" and set(op.args) == {one, other} and op.args[0] is not op.args[1]

    def effect(self, op: Any, read: Any, channels: int) -> Effect | None:
        """Return what a node does of what `read` computes, None for what no kernel does."""
        if op.op != "call_function":
            return None
        if op.target is operator.getitem:  # a norm of three results, of which one is read
            normed = str(read.target) in _NORMS and op.args[1] == 0
            return Linear(None, None) if normed else None
        kind = _kind(op)
        if kind in ("add", "mul"):
            return self._arithmetic(op, read, channels)
        if not op.args or op.args[0] is not read:
            return None
        # Of an image alone, what these take for channels are its rows.
        sizes = (1, channels) if len(self._tensors[read.name][0]) == self._rank else (1,)
        if str(op.target) in _NORMS:
            return self._norm(arguments(op)) if len(sizes) > 1 else None
        if kind in ("prelu", "_prelu_kernel"):
            slope = self._value(op.args[1])
            return None if slope is None or slope.size not in sizes else _prelu(slope, channels)
        step = _step(kind, op)
        return None if step is None else Activation(step)

    def _arithmetic(self, op: Any, read: Any, channels: int) -> Effect | None:
        one, other = op.args[:2]
        if other is read:
            one, other = other, one
            if _writes(op):
                return None  # to what it reads beside
        if one is not read or other is read or arguments(op).get("alpha", 1) != 1:
            return None
        if self._tensors.get(op.name) != self._tensors[read.name]:
            return None  # of another shape or type
        numbers = np.array(other) if isinstance(other, (int, float)) else self._value(other)
        if numbers is not None:
            vector = per_channel(numbers, channels, self._rank)
            if vector is None:
                return None
            return Linear(None, lambda: vector) if _kind(op) == "add" else Linear(lambda: vector, None)
        alike = isinstance(other, torch.fx.Node) and self._tensors.get(other.name) == self._tensors[read.name]
        return Sum(other) if alike and _kind(op) == "add" else None

    def _norm(self, given: Mapping[str, Any]) -> Effect | None:
        """Return what a BatchNorm with fixed statistics does."""
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

    def _value(self, node: Any) -> np.ndarray | None:
        """Return a tensor of the program, in f32 or f64; None for what is computed."""
        if getattr(node, "op", "") != "get_attr":
            return None
        tensor = torch.fx.Interpreter(self._module).fetch_attr(node.target).detach()
        numbers: np.ndarray = (tensor if tensor.dtype == torch.float64 else tensor.float()).numpy()
        return numbers


def _kind(op: Any) -> str:
    """Return an operation's name without its form: of ``aten.add_.Tensor``, ``add``."""
    parts = str(op.target).split(".")
    return parts[1].rstrip("_") if op.op == "call_function" and parts[0] == "aten" and len(parts) > 1 else ""


def _writes(op: Any) -> bool:
    return str(op.target).split(".")[1].endswith("_")


def _step(kind: str, op: Any) -> Step | None:
    """Return what an activation with fixed numbers does."""
    if kind in _FIXED:
        return _FIXED[kind]
    given = arguments(op)
    if kind == "gelu":
        return _GELU.get(given["approximate"])
    if kind not in _STEPS or any(given.get(name, 1) != 1 for name in ("scale", "input_scale")):
        return None
    name, names = _STEPS[kind]
    none = {"min": -inf, "max": inf}
    numbers = [none[each] if given[each] is None else given[each] for each in names]
    return Step(name, tuple(map(float, numbers))) if all(isinstance(n, (int, float)) for n in numbers) else None


def _prelu(slope: np.ndarray, channels: int) -> Effect:
    if slope.size == 1:
        return Activation(Step("leaky", (float(slope.reshape(-1)[0]),)))
    return Activation(Step("prelu"), lambda: slope.reshape(channels).astype(np.float64))
