"""Rewrite a model's graph: additions and activations fused with convolutions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import torch
from torch import fx, nn
from torch.nn.utils import parametrize

from ..epilogue import Step, format_epilogue, parse_epilogue
from .arguments import guard
from .averages import average
from .calls import Notice
from .canonical import canonicalize
from .causal import without_ends
from .channelwise import Graph
from .convolution import Convolution
from .epilogue_steps import changes_its_input, is_sum, slope_of, step_of
from .folding import TRANSPOSED, fold
from .gates import gate
from .layers import FusedConvolution
from .made import MADE, check_made, without_state
from .padding import take_pads
from .permuting import sink
from .planned import plain_attributes
from .proxies import IN_PLACE
from .same import SameConv1d, SameConv2d, SameConv3d, SameConvolution
from .tracing import BY_ITSELF, Untraced, Ways, trace
from .unchanged import unchanged

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, SameConv1d, SameConv2d, SameConv3d)


def describe(module: nn.Module) -> Convolution | None:
    """Return what a module computes, None if it is no convolution that a layer could replace.

    One that pads by something else than zeros is described without its pads, which are its layer's.
    """
    kind = type(module)
    if kind not in (*_CONVOLUTIONS, *TRANSPOSED, nn.Linear) or obstacle(module) is not None:
        return None
    if kind is nn.Linear:
        return Convolution(False, (), (), (), (), (), 1)
    begin, end = _pads(module)
    return Convolution(
        kind in TRANSPOSED,
        tuple(module.stride),
        begin,
        end,
        tuple(module.dilation),
        tuple(module.output_padding),
        module.groups,
        same=isinstance(module, SameConvolution),
    )


def obstacle(module: nn.Module) -> str | None:
    """Return why no layer replaces a convolution or Linear of PyTorch, or a subclass of one; None if one does."""
    if parametrize.is_parametrized(module):
        return "parametrizations compute its parameters"
    if type(module) not in (*_CONVOLUTIONS, *TRANSPOSED, nn.Linear):
        return f"{type(module).__name__} is a subclass, which may compute something else"
    if module._forward_hooks or module._forward_pre_hooks:
        return "a hook looks at it, or computes its parameters"
    return None


def swap(model: nn.Module, notice: Notice, path: str = "") -> nn.Module:
    """Replace each convolution of a model by a layer, in place; a model that is one itself, by returning the layer."""
    if (convolution := describe(model)) is not None:
        return FusedConvolution(model, convolution, path, notice)
    layers: dict[int, nn.Module] = {}  # one that stands in several places stays one
    for parent_name, parent in list(model.named_modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and (convolution := describe(child)) is not None:
                full = ".".join(filter(None, (path, parent_name, name)))
                layer = layers.setdefault(id(child), FusedConvolution(child, convolution, full, notice))
                setattr(parent, name, layer)
    return model


def fuse(model: nn.Module, example: Sequence[Any], notice: Notice, prefix: str = "", ways: Ways = BY_ITSELF) -> Any:
    """Return a model as a graph whose convolutions are layers; `example` are its arguments.

    It has the model's attributes that are numbers or texts, for code that asks.

    Raises
    ------
    Untraced
        If there is no graph.
    """
    before = {path: _attributes(module) for path, module in model.named_modules()}
    with unchanged(model):
        traced = trace(model, example, ways)
        for path, was in before.items():
            if any(now is not then for now, then in zip_longest(_attributes(model.get_submodule(path)), was)):
                raise Untraced(ValueError("it remembers something from call to call, which a graph does not"), path)
    made = without_state(traced)
    canonicalize(traced)
    watching = _Watching(traced)
    with torch.no_grad(), unchanged(traced):
        answer = watching.run(*example)
    check_made(made, answer)
    guard(traced, list(example), ways.lists)
    modules = dict(traced.named_modules(remove_duplicate=False))
    nodes = [node for node in traced.graph.nodes if node.op == "call_module"]
    times = Counter(id(modules[node.target]) for node in nodes)
    read = {node.target.rpartition(".")[0] for node in traced.graph.nodes if node.op == "get_attr"}
    convolutions = {node: modules[node.target] for node in nodes if describe(modules[node.target]) is not None}
    if convolutions:
        like = modules[next(iter(convolutions)).target].weight
        unweighted = Graph(traced, modules, watching.shapes, like, prefix, notice)
        average(unweighted)
        if like.device.type == "cpu":
            gate(unweighted)
    # What is called once, and whose weights nobody reads, may change.
    within = {id(each) for node in nodes if node not in convolutions for each in modules[node.target].modules()}
    own = [
        node
        for node, module in convolutions.items()
        if times[id(module)] == 1 and node.target not in read and id(module) not in within
    ]
    for node in own:
        if type(modules[node.target]) is nn.Linear:
            sink(traced.graph, node, modules, watching.shapes)
        fold(traced.graph, node, modules, watching.shapes[node.name])
    described = {node: convolution for node in own if (convolution := describe(modules[node.target])) is not None}
    take_pads(traced, modules, described, changes_its_input, watching.shapes)
    order = {node: place for place, node in enumerate(traced.graph.nodes)}
    layers: dict[int, FusedConvolution] = {}
    for node, module in convolutions.items():
        if id(module) not in layers:
            convolution, slope = described.get(node) or describe(module), None
            assert convolution is not None
            if node in described:
                convolution, slope = _fuse_steps(traced.graph, node, convolution, modules, order, watching.shapes)
            layers[id(module)] = FusedConvolution(module, convolution, prefix + node.target, notice, slope)
            if node in described:
                layers[id(module)].reflection = None  # a node pads
        replace_module(traced, node.target, layers[id(module)])
        modules[node.target] = layers[id(module)]
    for node in traced.graph.nodes:
        node.type = None  # an annotation that is a text, which a graph cannot be saved with
    traced.delete_all_unused_submodules()
    traced.recompile()
    vars(traced).update(plain_attributes(model, traced))
    return swap(traced, notice, prefix.removesuffix("."))  # what is within modules that are one node


def _attributes(module: nn.Module) -> list[Any]:
    """Return what a module has, but what torch.fx adds."""
    kept = {**vars(module), **module._buffers, **module._modules}
    return [value for name, value in kept.items() if not name.startswith(MADE)]


class _Watching(fx.Interpreter):  # type: ignore[misc]
    """Runs a graph, and keeps the shapes of the tensors that its nodes compute."""

    def __init__(self, traced: fx.GraphModule) -> None:
        super().__init__(traced)
        self.extra_traceback = False  # nobody reads it, and making one imports torch._inductor, which takes seconds
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: Any) -> Any:
        """Run one node."""
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            self.shapes[n.name] = tuple(result.shape)
        return result


def _pads(module: nn.Module) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if module.padding == "valid" or module.padding_mode != "zeros":
        return (0,) * len(module.stride), (0,) * len(module.stride)
    if module.padding == "same":  # the odd one at the end
        totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        return tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return tuple(module.padding), tuple(module.padding)


def replace_module(model: nn.Module, path: str, module: nn.Module) -> None:
    """Put a module to a path in a model."""
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)


def _fuse_steps(
    graph: fx.Graph,
    node: Any,
    convolution: Convolution,
    modules: dict[str, nn.Module],
    order: dict[Any, int],
    shapes: dict[str, tuple[int, ...]],
) -> tuple[Convolution, Any]:
    """Let a convolution's node compute the steps after it, as far as each alone reads what was computed before.

    Return the convolution with its steps, and the parameter of the step ``prelu``, None without one.
    """
    steps: list[Step] = []
    chain: list[Any] = []
    residual, slope, last, in_place, contiguous = None, None, node, False, False
    second = not convolution.is_linear or len(shapes[node.name]) == 2  # channels are where PReLU has them
    while len(last.users) == 1:
        (user,) = last.users
        plain = not steps and len(node.args) == 1 and not node.kwargs  # no size of the output is given
        cut = without_ends(user, convolution, modules[node.target].weight.shape[2:], modules) if plain else None
        if cut is not None:
            convolution, shapes[node.name], contiguous = cut, shapes[user.name], True
        elif contiguous and user.op == "call_method" and user.target == "contiguous":
            contiguous = False  # which is asked for after a slice
        elif residual is None and is_sum(user):
            other = user.args[1] if user.args[0] is last else user.args[0]
            if shapes[node.name] != shapes.get(other.name):  # None: a number
                break
            if _sum_belongs_elsewhere(node, user, other, chain, modules, order):
                break
            residual = other
            in_place = IN_PLACE in user.meta or changes_its_input(user, modules)
            steps.append(Step("add"))
            order[node] = order[user]
            user.append(node)
        else:
            step = step_of(user, modules)
            given = slope_of(graph, user, modules) if second and slope is None and step is None else None
            if (step is None and given is None) or user.args[:1] != (last,):
                break
            slope = slope if given is None else given
            steps.append(step or Step("prelu"))
        chain.append(user)
        last = user
    if not chain:
        return convolution, None
    last.replace_all_uses_with(node)
    for each in reversed(chain):
        graph.erase_node(each)
        del order[each]
    if residual is not None:
        node.kwargs = {**node.kwargs, "residual": residual}
    fused = replace(convolution, epilogue=format_epilogue(parse_epilogue(steps)), adds_in_place=in_place)
    return fused, slope


def _sum_belongs_elsewhere(
    node: Any, sum_: Any, other: Any, chain: list[Any], modules: dict[str, nn.Module], order: dict[Any, int]
) -> bool:
    """Whether a convolution cannot move to where its output is added to `other`, or should not."""
    if sum_.args[0] is sum_.args[1]:
        return True  # twice itself
    if other is sum_.args[0] and changes_its_input(sum_, modules):
        return True  # others see what is written to it
    if other.op == "call_module" and describe(modules[other.target]) is not None and order[other] > order[node]:
        return True
    # What the convolution reads must stay as it is on the way.
    passed = [each for each, place in order.items() if order[node] < place < order[sum_] and each not in chain]
    return any(changes_its_input(each, modules) for each in passed)
