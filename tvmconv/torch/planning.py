"""`Planner`: computes a segment of a graph by the plan for its inputs, or node by node where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from .calls import version_of
from .kernels import OPENED
from .layers import FusedConvolution
from .plan import Layer, Met, Plan, computing
from .segments import Segment

_PLAIN = (torch.Tensor, nn.Parameter)
# Plans that a segment keeps; one that meets more kinds of inputs forgets them all and begins again.
_REMEMBERED = 64
Key = tuple[Any, ...]


class Planner:
    """A segment, and its plans by the kind of its inputs.

    Parameters
    ----------
    segment
        What is computed.
    root
        The module whose graph it belongs to.
    """

    def __init__(self, segment: Segment, root: nn.Module) -> None:
        self._segment, self._root = segment, root
        self._premises: _Premises | None = None
        # None: nothing to gain, as long as no other bundle is opened.
        self._plans: dict[Key, Plan | None] = {}

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the segment's outputs."""
        if not _is_plain(inputs):
            return self._compute(inputs, {})
        premises = self._premises
        if premises is None or not premises.hold():
            self._premises = premises = _Premises(self._segment, self._root)
            self._plans = {}
            if not premises.hold():
                return self._compute(inputs, {})
        if torch.is_grad_enabled() and (any(each.requires_grad for each in inputs) or premises.need_gradients()):
            return self._compute(inputs, {})
        plans = self._plans
        key = tuple((each.shape, each.stride(), each.dtype, each.device) for each in inputs)
        if key in plans:
            plan = plans[key]
            try:
                return self._compute(inputs, {}) if plan is None else plan(inputs)
            except RuntimeError:  # there is no memory, or a tensor has none: whoever is at fault says so
                return self._compute(inputs, {})
        # Whatever changes meanwhile, these plans are no longer asked for.
        return self._meet(inputs, key, plans)

    def _compute(self, inputs: Sequence[Any], values: dict[Any, Any]) -> list[Any]:
        """Compute node by node; `values` takes what each computes."""
        values.update(zip(self._segment.inputs, inputs, strict=True))
        for node in self._segment.nodes:
            values[node] = computing(self._root, node)(values)
        return [values[node] for node in self._segment.outputs]

    def _meet(self, inputs: Sequence[Any], key: Key, plans: dict[Key, Plan | None]) -> list[Any]:
        """Compute inputs of a new kind, and plan what was seen."""
        values: dict[Any, Any] = {}
        outputs = self._compute(inputs, values)
        if len(plans) >= _REMEMBERED:
            plans.clear()
        plans[key] = None
        layers = {node: layer for node in self._segment.nodes if (layer := self._layer(node, values)) is not None}
        computed = [values[node] for node in self._segment.nodes]
        if layers and all(isinstance(each, torch.Tensor) for each in computed):
            met = {node: Met.of(values[node]) for node in self._segment.nodes}
            plans[key] = Plan(self._segment, self._root, layers, met)
        return outputs

    def _layer(self, node: Any, values: dict[Any, Any]) -> Layer | None:
        """Return how a node is computed by a kernel of the CPU, None if it is not."""
        if node.op != "call_module" or len(node.args) != 1 or not set(node.kwargs) <= {"residual"}:
            return None
        module = self._root.get_submodule(node.target)
        if not isinstance(module, FusedConvolution):
            return None
        (data,), residual = node.args, node.kwargs.get("residual")
        call = module.calls.addressed(values[data], None if residual is None else values[residual])
        return None if call is None else Layer(call, module.bias, data, residual)


class _Premises:
    """What plans rest on: the modules, that nobody looks into them, their weights, and the bundles that are open."""

    def __init__(self, segment: Segment, root: nn.Module) -> None:
        self._generation = OPENED.generation
        places: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        modules: dict[Any, None] = {}
        for node in segment.nodes:
            if node.op == "call_module":
                module = root
                for name in node.target.split("."):
                    parent, module = module._modules, module._modules[name]
                    places[id(parent), name] = (parent, name, module)
                modules[module] = None
        self._places = list(places.values())
        self._hooks = [hooks for module in modules for hooks in (module._forward_hooks, module._forward_pre_hooks)]
        self._weights = []
        for module in modules:
            if isinstance(module, FusedConvolution):
                weight, bias = module._parameters["weight"], module._parameters["bias"]
                addresses = (weight.data_ptr(), 0 if bias is None else bias.data_ptr())
                self._weights.append((module._parameters, weight, version_of(weight), bias, *addresses))

    def hold(self) -> bool:
        """Whether all is as it was."""
        if self._generation != OPENED.generation or any(self._hooks):
            return False
        for modules, name, module in self._places:
            if modules.get(name) is not module:
                return False
        for parameters, weight, version, bias, address, bias_address in self._weights:
            if (
                parameters["weight"] is not weight
                or version_of(weight) != version
                or weight.data_ptr() != address
                or parameters["bias"] is not bias
                or (bias is not None and bias.data_ptr() != bias_address)
            ):
                return False
        return True

    def need_gradients(self) -> bool:
        """Whether a weight does."""
        return any(
            weight.requires_grad or (bias is not None and bias.requires_grad)
            for _, weight, _, bias, *_ in self._weights
        )


def _is_plain(inputs: Sequence[Any]) -> bool:
    """Whether these are tensors that are computed at once."""
    if torch._C._len_torch_dispatch_stack() or torch.jit.is_tracing() or torch.is_autocast_enabled("cpu"):
        return False
    return all(type(each) in _PLAIN for each in inputs) and not _has_any_global_hook()
