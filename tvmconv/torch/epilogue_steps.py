"""The modules, functions and methods of PyTorch that are steps of an epilogue."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as functional
from torch import nn

from ..epilogue import Step, parse_epilogue
from ..errors import InvalidProblemError
from .folding import attribute
from .layers import FusedConvolution
from .pads import Pad
from .same import SameConvolution
from .sized import CutBySize, PadBySize

_SIXTH = (1 / 6, 0.5)  # the numbers of PyTorch's hardsigmoid
_BOUNDS = (("min_val", -1.0), ("max_val", 1.0))
# By a module's type: the step, and the attributes that are its numbers.
_MODULES: dict[type, tuple[str, tuple[str, ...]]] = {
    nn.ReLU: ("relu", ()),
    nn.ReLU6: ("clip", ("min_val", "max_val")),
    nn.Hardtanh: ("clip", ("min_val", "max_val")),
    nn.LeakyReLU: ("leaky", ("negative_slope",)),
    nn.ELU: ("elu", ("alpha",)),
    nn.Sigmoid: ("sigmoid", ()),
    nn.Tanh: ("tanh", ()),
    nn.SiLU: ("silu", ()),
    nn.Hardswish: ("hardswish", ()),
}
# By a function, or the name of a tensor's method: the step, and the arguments that are its numbers, with their defaults.
_FUNCTIONS: dict[Any, tuple[str, tuple[tuple[str, float], ...]]] = {
    **dict.fromkeys((functional.relu, torch.relu, torch.relu_, "relu", "relu_"), ("relu", ())),
    functional.hardtanh: ("clip", _BOUNDS),
    **dict.fromkeys(
        (torch.clamp, "clamp", "clamp_"), ("clip", (("min", -torch.inf), ("max", torch.inf)))
    ),
    functional.leaky_relu: ("leaky", (("negative_slope", 0.01),)),
    functional.elu: ("elu", (("alpha", 1.0),)),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid, "sigmoid", "sigmoid_"), ("sigmoid", ())),
    **dict.fromkeys((functional.tanh, torch.tanh, "tanh", "tanh_"), ("tanh", ())),
    functional.silu: ("silu", ()),
    functional.hardswish: ("hardswish", ()),
}  # fmt: skip
_ADDS = (operator.add, torch.add, "add")
_ADDS_IN_PLACE = (operator.iadd, "add_")


def step_of(node: Any, modules: dict[str, nn.Module]) -> Step | None:
    """Return the step that a node of a graph computes of its first argument, None if it is none.

    Sums of two tensors are asked for by :func:`is_sum`.
    """
    if node.op == "call_module":
        return _step_of_module(modules[node.target])
    if node.op not in ("call_function", "call_method"):
        return None
    options = {name: value for name, value in node.kwargs.items() if name != "inplace"}
    if node.target is functional.relu6:
        return Step("clip", (0.0, 6.0))
    if node.target is functional.hardsigmoid:
        return Step("hardsigmoid", _SIXTH)
    if node.target is functional.gelu:
        approximate = options.get("approximate", "none")
        return Step("gelu" if approximate == "none" else "gelu_tanh")
    if node.target not in _FUNCTIONS:
        return None
    name, parameters = _FUNCTIONS[node.target]
    given = dict(zip((parameter for parameter, _ in parameters), node.args[1:], strict=False))
    numbers = {**dict(parameters), **given, **options}
    # None is no bound, which is what the defaults of clamp say.
    numbers = {key: dict(parameters)[key] if number is None else number for key, number in numbers.items()}
    return _step(name, [numbers[parameter] for parameter, _ in parameters])


def slope_of(graph: Any, node: Any, modules: dict[str, nn.Module]) -> Any:
    """Return the parameter of a PReLU with a slope for each of the second axis' indices, None if a node is none."""
    if node.op == "call_module":
        module = modules[node.target]
        hooked = module._forward_hooks or module._forward_pre_hooks
        return module.weight if type(module) is nn.PReLU and module.weight.numel() > 1 and not hooked else None
    if node.op != "call_function" or node.target not in (functional.prelu, torch.prelu) or len(node.args) != 2:
        return None
    if getattr(node.args[1], "op", "") != "get_attr":
        return None
    slope = attribute(graph.owning_module, node.args[1].target)
    return slope if isinstance(slope, nn.Parameter) and slope.numel() > 1 else None


def is_sum(node: Any) -> bool:
    """Whether a node adds two tensors, and does nothing else."""
    known = node.op in ("call_function", "call_method") and node.target in (*_ADDS, *_ADDS_IN_PLACE)
    return known and len(node.args) == 2 and not node.kwargs and all(hasattr(each, "op") for each in node.args)


def changes_its_input(node: Any, modules: dict[str, nn.Module]) -> bool:
    """Whether a node may write to a tensor that it was given."""
    if node.op == "call_module":
        module = modules[node.target]
        return bool(getattr(module, "inplace", False)) or not (
            isinstance(module, (FusedConvolution, SameConvolution, Pad, PadBySize, CutBySize))
            or type(module).__module__.startswith("torch.nn.")
        )
    if node.op == "call_method":
        return node.target.endswith("_") or node.target == "__setitem__"
    if node.op != "call_function":
        return False
    written = node.target in _WRITING or getattr(node.target, "__name__", "").endswith("_")
    return written or bool(node.kwargs.get("inplace")) or "out" in node.kwargs


# Python's operators that write: setitem, iadd and its like.
_WRITING = (operator.setitem, *(getattr(operator, name) for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift", "imatmul", "iconcat")))  # fmt: skip


def _step_of_module(module: nn.Module) -> Step | None:
    kind = type(module)
    if module._forward_hooks or module._forward_pre_hooks:
        return None
    if kind is nn.Hardsigmoid:
        return Step("hardsigmoid", _SIXTH)
    if kind is nn.PReLU and module.weight.numel() == 1:
        return _step("leaky", [float(module.weight)])
    if kind is nn.GELU:
        return Step("gelu" if module.approximate == "none" else "gelu_tanh")
    if kind not in _MODULES:
        return None
    name, attributes = _MODULES[kind]
    return _step(name, [getattr(module, attribute) for attribute in attributes])


def _step(name: str, numbers: list[Any]) -> Step | None:
    if not all(isinstance(number, (int, float)) for number in numbers):
        return None  # computed in the model
    step = Step(name, tuple(map(float, numbers)))
    try:
        parse_epilogue([step])
    except InvalidProblemError:
        return None
    return step
