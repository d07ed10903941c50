"""Canonical forms of what models write in several ways: functions as modules, activations and poolings as single nodes."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as functional
from torch import fx, nn

from ..epilogue import Step
from .axes import ask_earlier
from .computed import computed, made_by
from .epilogue_steps import changes_its_input, is_sum, step_of
from .folding import PRODUCTS, attribute, erase
from .inplace import out_of_place

_MODULES: dict[Any, type[nn.Module]] = {
    functional.conv1d: nn.Conv1d,
    functional.conv2d: nn.Conv2d,
    functional.conv3d: nn.Conv3d,
    functional.conv_transpose1d: nn.ConvTranspose1d,
    functional.conv_transpose2d: nn.ConvTranspose2d,
    functional.conv_transpose3d: nn.ConvTranspose3d,
    functional.linear: nn.Linear,
}
_PARAMETERS = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED_PARAMETERS = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
# By a pooling, its number of axes.
_POOLS: dict[Any, int] = {
    **dict.fromkeys((nn.AdaptiveAvgPool1d, functional.adaptive_avg_pool1d), 1),
    **dict.fromkeys((nn.AdaptiveAvgPool2d, functional.adaptive_avg_pool2d), 2),
    **dict.fromkeys((nn.AdaptiveAvgPool3d, functional.adaptive_avg_pool3d), 3),
}
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_DROPOUT_FUNCTIONS = (
    functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d, functional.alpha_dropout,
    functional.feature_alpha_dropout,
)  # fmt: skip
_SUMS = (operator.add, torch.add, "add")
_QUOTIENTS = (operator.truediv, torch.div, "div")
# By a gate's step, what multiplies a tensor by its own gate.
_GATED = {"sigmoid": functional.silu, "hardsigmoid": functional.hardswish}


def canonicalize(traced: fx.GraphModule) -> None:
    """Rewrite a graph in place: a module for each call of a convolution, a node for each activation, none for nothing.

    The convolutions are those with the model's own weights; the activations ``x * sigmoid(x)``, ``relu6(x + 3) / 6``, and
    their product with x, in either order. A pooling to one pixel is a mean, which a plan computes in its own memory.
    """
    for node in list(traced.graph.nodes):
        if node.op == "call_function" and node.target in _MODULES:
            _as_module(traced, node)
        elif node.op == "call_method" and node.target == "view" and _is_shape(node.args[1:]):
            node.target = "reshape"  # kernels leave their outputs channels last, which has fewer views
    _leave_out(traced)
    out_of_place(traced)
    _leave_out(traced)  # sums that begin with 0 stay where something works in place
    ask_earlier(traced)
    modules = dict(traced.named_modules(remove_duplicate=False))
    for node in list(traced.graph.nodes):
        if axes := _mean_of(node, modules):
            with traced.graph.inserting_before(node):
                mean = traced.graph.call_function(torch.mean, (node.args[0], axes), {"keepdim": True})
            node.replace_all_uses_with(mean)
            traced.graph.erase_node(node)
    for node in list(traced.graph.nodes):
        for pattern in (_hardsigmoid, _hardswish, _gated):
            if (found := pattern(node, modules)) is not None:
                _replace(traced.graph, node, *found)
                break


def _leave_out(traced: fx.GraphModule) -> None:
    """Erase the nodes that do nothing."""
    modules = dict(traced.named_modules(remove_duplicate=False))
    for node in list(traced.graph.nodes):
        if _does_nothing(node, modules):
            node.replace_all_uses_with(node.all_input_nodes[0])
            traced.graph.erase_node(node)


def _as_module(traced: fx.GraphModule, node: Any) -> None:
    """Let a module compute a convolution that is called as a function with weights of the model."""
    transposed = "transpose" in node.target.__name__
    names = _TRANSPOSED_PARAMETERS if transposed else _PARAMETERS
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    data, read = given.pop("input"), [given.pop("weight"), given.pop("bias", None)]
    weight, bias = (_tensor(traced, each) for each in read)
    sizes: list[fx.Node] = []
    fx.node.map_arg(given, sizes.append)
    if weight is None or (bias is None) != (read[1] is None) or sizes:
        return
    if node.target is functional.linear and weight.dim() != 2:
        return  # a vector
    inputs, outputs = weight.shape[:2] if transposed else (weight.shape[1], weight.shape[0])
    groups = given.get("groups", 1)
    inputs, outputs = (inputs, outputs * groups) if transposed else (inputs * groups, outputs)
    taps = () if node.target is functional.linear else (tuple(weight.shape[2:]),)
    with torch.device("meta"):
        module: Any = _MODULES[node.target](inputs, outputs, *taps, bias=bias is not None, **given)
    module.weight = weight
    module.bias = bias
    name = next((each.target for each in made_by(read[0]) or () if each.op == "get_attr"), read[0].name)
    path = f"{name}_of_{node.name}".replace(".", "_")  # beside all others: what is there may be replaced
    traced.add_submodule(path, module.eval())
    with traced.graph.inserting_before(node):
        call = traced.graph.call_module(path, (data,))
    node.replace_all_uses_with(call)
    erase(traced.graph, node)


def _tensor(traced: fx.GraphModule, node: Any) -> Any:
    """Return a tensor of the model, or one that is computed of such alone, as a parameter; None if a node is neither."""
    if not isinstance(node, fx.Node):
        return None
    tensor = attribute(traced, node.target) if node.op == "get_attr" else computed(traced, node)
    if tensor is None:
        return None
    return tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=False)


def _does_nothing(node: Any, modules: dict[str, nn.Module]) -> bool:
    """Whether a node is what it is given: an Identity, a dropout outside of training, or 0 + x as a term of a sum."""
    if node.op == "call_function" and node.target in _DROPOUT_FUNCTIONS:
        given = {**dict(zip(("input", "p", "training"), node.args, strict=False)), **node.kwargs}
        return bool(node.args) and given.get("training", True) is False
    if node.op == "call_function" and _is_stochastic_depth(node.target):
        return {**dict(zip(_DEPTH_PARAMETERS, node.args, strict=False)), **node.kwargs}.get("training", True) is False
    if node.target is operator.add and type(node.args[0]) is int and node.args[0] == 0:  # as Python's sum begins
        summed = all(is_sum(user) for user in node.users) and _stays(node, modules)
        return summed and _stays(node.args[1], modules)
    if len(node.args) != 1 or node.kwargs or node.op != "call_module":
        return False
    module = modules[node.target]
    if module._forward_hooks or module._forward_pre_hooks:
        return False
    return type(module) is nn.Identity or (type(module) in _DROPOUTS and (module.p == 0 or not module.training))


_DEPTH_PARAMETERS = ("input", "p", "mode", "training")


def _is_stochastic_depth(function: Any) -> bool:
    """Whether a function is torchvision's, which its graphs call as it is."""
    home = getattr(function, "__module__", None) or ""
    return home.startswith("torchvision.") and getattr(function, "__name__", "") == "stochastic_depth"


def _is_shape(given: tuple[Any, ...]) -> bool:
    """Whether a view is given a shape, not a type."""
    return bool(given) and not isinstance(given[0], torch.dtype)


def _mean_of(node: Any, modules: dict[str, nn.Module]) -> tuple[int, ...]:
    """Return the axes of which a node pools all elements to one; none if it does something else."""
    if node.op == "call_module" and len(node.args) == 1 and not node.kwargs:
        module = modules[node.target]
        watched = module._forward_hooks or module._forward_pre_hooks
        kind, size = type(module), None if watched else getattr(module, "output_size", None)
    elif node.op == "call_function" and len(node.args) == 2 and not node.kwargs:
        kind, size = node.target, node.args[1]
    else:
        return ()
    axes = _POOLS.get(kind, 0)
    return tuple(range(-axes, 0)) if axes and size in (1, (1,) * axes, [1] * axes) else ()


def _hardsigmoid(node: Any, modules: dict[str, nn.Module]) -> tuple[Any, Any] | None:
    """Whether a node is relu6(x + 3) / 6: its function, and x."""
    given = _clipped(_with_number(node, _QUOTIENTS, 6), modules)
    return None if given is None else (functional.hardsigmoid, given)


def _hardswish(node: Any, modules: dict[str, nn.Module]) -> tuple[Any, Any] | None:
    """Whether a node is x * relu6(x + 3) / 6."""
    for given, other in _factors(_with_number(node, _QUOTIENTS, 6)):
        if _clipped(other, modules) is given and _stays(given, modules):
            return functional.hardswish, given
    return None


def _gated(node: Any, modules: dict[str, nn.Module]) -> tuple[Any, Any] | None:
    """Whether a node is x * sigmoid(x) or x * hardsigmoid(x)."""
    for given, gate in _factors(node):
        step = step_of(gate, modules)
        if step is not None and step.name in _GATED and gate.args[:1] == (given,) and _stays(given, modules):
            return _GATED[step.name], given
    return None


def _clipped(node: Any, modules: dict[str, nn.Module]) -> Any:
    """Return x if a node is relu6(x + 3), else None."""
    if node is None or len(node.users) != 1 or step_of(node, modules) != Step("clip", (0.0, 6.0)):
        return None
    return _with_number(node.args[0], _SUMS, 3) if node.args else None


def _with_number(node: Any, functions: tuple[Any, ...], number: float) -> Any:
    """Return x if a node is one of these functions of x and this number, else None."""
    called = getattr(node, "op", "") in ("call_function", "call_method") and node.target in functions
    return node.args[0] if called and not node.kwargs and node.args[1:] == (number,) else None


def _factors(node: Any) -> list[tuple[Any, Any]]:
    """Return the two nodes that a node multiplies, in both orders; none if it does something else."""
    if node is None or node.op not in ("call_function", "call_method") or node.target not in PRODUCTS or node.kwargs:
        return []
    if not all(isinstance(each, fx.Node) for each in node.args):
        return []
    a, b = node.args
    return [(a, b), (b, a)]


def _stays(node: Any, modules: dict[str, nn.Module]) -> bool:
    """Whether nothing that reads a tensor may change it."""
    return not any(changes_its_input(user, modules) for user in node.users)


def _replace(graph: fx.Graph, node: Any, function: Any, given: Any) -> None:
    with graph.inserting_before(node):
        node.replace_all_uses_with(graph.call_function(function, (given,)))
    erase(graph, node)
