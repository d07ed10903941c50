"""`Planner`: computes a segment of a graph by the plan for its inputs, or node by node where there is none."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from .channelwise import Unweighted
from .kernels import OPENED
from .layers import FusedConvolution
from .plan import Layer, Plan, computing, seen
from .segments import Segment, part
from .sliced import SlicedPlan, slice_of
from .slices import Cut, cut

_PLAIN = (torch.Tensor, nn.Parameter)
# Plans that a segment keeps; one that meets more kinds of inputs forgets them all and begins again.
_REMEMBERED = 64
_VERSION = operator.attrgetter("_version")
_TRAINING = operator.attrgetter("training")
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

    def __call__(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the segment's outputs."""
        if not _is_plain(inputs):
            return self._compute(inputs)
        # Taken once: another thread may see other weights and replace them.
        premises = self._premises
        if premises is None or not premises.hold():
            self._premises = premises = _Premises(self._segment, self._root)
            if not premises.hold():
                return self._compute(inputs)
        if torch.is_grad_enabled() and (any(each.requires_grad for each in inputs) or premises.need_gradients()):
            return self._compute(inputs)
        key = tuple((each.shape, each.stride(), each.dtype, each.device) for each in inputs)
        if key not in premises.plans:
            return self._meet(inputs, key, premises.plans)
        plan = premises.plans[key]
        try:
            return self._compute(inputs) if plan is None else plan(inputs)
        except (RuntimeError, OSError):  # there is no memory, or a tensor has none: whoever is at fault says so
            return self._compute(inputs)

    def _compute(self, inputs: Sequence[Any]) -> list[Any]:
        """Compute node by node."""
        return self._see(self._segment, inputs, lambda node, values: None)

    def _see(self, segment: Segment, inputs: Sequence[Any], see: Callable[[Any, dict[Any, Any]], None]) -> list[Any]:
        """Compute a segment node by node; `see` is called with each, and the values by then."""
        values = dict(zip(segment.inputs, inputs, strict=True))
        for node in segment.nodes:
            values[node] = computing(self._root, node)(values)
            see(node, values)
            for each in segment.dead_after[node]:
                del values[each]
        return [values[node] for node in segment.outputs]

    def _meet(self, inputs: Sequence[Any], key: Key, plans: dict[Key, Plan | SlicedPlan | None]) -> list[Any]:
        """Compute inputs of a new kind, and plan what was seen."""
        if len(plans) >= _REMEMBERED:
            plans.clear()
        outputs, met, layers = self._met(self._segment, inputs)
        plan = Plan(self._segment, self._root, layers, met) if layers else None
        met.update(zip(self._segment.inputs, map(seen, inputs), strict=True))
        found = cut(self._segment, dict(self._root.named_modules(remove_duplicate=False)), met)
        if found is not None and self._may_serve(found, met, layers):
            plans[key] = self._sliced(plan, found, inputs)
        else:
            plans[key] = plan
        return outputs

    def _may_serve(self, found: Cut, met: dict[Any, Any], layers: dict[Any, Layer]) -> bool:
        """Whether slices have kernels where the whole has: those of a bundle may be for the whole batch alone."""
        for node in self._segment.nodes[found.start : found.stop]:
            if node in layers:
                module, data = self._root.get_submodule(node.target), met[layers[node].data]
                shape = (found.images, *data.shape[1:])
                if not module.calls.may_serve(shape, data.dtype, module.weight, module.bias):
                    return False
        return True

    def _met(self, segment: Segment, inputs: Sequence[Any]) -> tuple[list[Any], dict[Any, Any], dict[Any, Layer]]:
        """Compute a segment; return its outputs, what was seen of its nodes, and those that kernels compute."""
        layers: dict[Any, Layer] = {}
        met: dict[Any, Any] = {}

        def see(node: Any, values: dict[Any, Any]) -> None:
            met[node] = seen(values[node])
            if (layer := self._layer(node, values)) is not None:
                layers[node] = layer

        return self._see(segment, inputs, see), met, layers

    def _sliced(self, whole: Plan | None, found: Cut, inputs: Sequence[Any]) -> Plan | SlicedPlan | None:
        """Return the plan that computes a part by slices, or that of the whole if a kernel is missing.

        Slices are met without kernels, too, so that it is known what to build.
        """
        before, slices, after = (
            part(self._segment, *ends)
            for ends in ((0, found.start), (found.start, found.stop), (found.stop, len(self._segment.nodes)))
        )
        values = dict(zip(self._segment.inputs, inputs, strict=True))
        made, _, _ = self._met(before, [values[node] for node in before.inputs])
        values.update(zip(before.outputs, made, strict=True))
        _, met, layers = self._met(slices, [slice_of(found, node, values[node]) for node in slices.inputs])
        if whole is None or any(node in whole.layers and node not in layers for node in slices.nodes):
            return whole
        if any(node not in whole.layers for node in (*before.outputs, *slices.outputs)):
            return whole

        def planned(segment: Segment) -> Plan | None:
            inside = {node: whole.layers[node] for node in segment.nodes if node in whole.layers}
            return Plan(segment, self._root, inside, whole.met) if segment.nodes else None

        return SlicedPlan(whole, found, planned(before), Plan(slices, self._root, layers, met), planned(after))

    def _layer(self, node: Any, values: dict[Any, Any]) -> Layer | None:
        """Return how a kernel of the CPU computed a node, None if none did."""
        if node.op != "call_module" or len(node.args) != 1 or not set(node.kwargs) <= {"residual"}:
            return None
        module = self._root.get_submodule(node.target)
        if not isinstance(module, FusedConvolution) or module.reflection is not None or module.lies_as_torch:
            return None
        (data,), residual = node.args, node.kwargs.get("residual")
        call = module.calls.addressed(values[data], None if residual is None else values[residual])
        # PyTorch computed it if there was no memory, and its output may lie otherwise.
        if call is None or values[node].shape != call.shape or values[node].stride() != call.strides:
            return None
        return Layer(call, module.bias, data, residual)


class _Premises:
    """What plans depend on (the modules, their hooks and weights, the open bundles), and the plans."""

    def __init__(self, segment: Segment, root: nn.Module) -> None:
        # By the kind of the inputs; None: nothing to gain.
        self.plans: dict[Key, Plan | SlicedPlan | None] = {}
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
        self._hooks = [hooks for module in modules for hooks in (module._forward_hooks, module._forward_pre_hooks)]
        # Filters of ones stay what they are.
        layers = [each for each in modules if isinstance(each, FusedConvolution) and not isinstance(each, Unweighted)]
        self._others = [module for module in modules if not isinstance(module, FusedConvolution)]
        # What kernels have copies of.
        self._weights = [each for layer in layers for each in (layer.weight, layer.slope) if each is not None]
        self._tensors = self._weights + [layer.bias for layer in layers if layer.bias is not None]
        self._addresses = [*map(torch.Tensor.data_ptr, self._tensors)]
        # Tensors of inference mode do not count their changes.
        self._versions = None if any(each.is_inference() for each in self._weights) else [*map(_VERSION, self._weights)]
        # All at once, since it is asked in each call: where modules and parameters are found, under which name, and which.
        found = [
            *places.values(),
            *(
                (layer._parameters, name, getattr(layer, name))
                for layer in layers
                for name in ("weight", "bias", "slope")
            ),
        ]
        self._places, self._names, self._found = map(list, zip(*found, strict=True))

    def hold(self) -> bool:
        """Whether all is as it was."""
        return (
            self._generation == OPENED.generation
            and not any(self._hooks)
            and not any(map(_TRAINING, self._others))
            and all(map(operator.is_, map(dict.get, self._places, self._names), self._found))
            and self._versions is not None
            and [*map(_VERSION, self._weights)] == self._versions
            and [*map(torch.Tensor.data_ptr, self._tensors)] == self._addresses
        )

    def need_gradients(self) -> bool:
        """Whether a parameter does."""
        return any(tensor.requires_grad for tensor in self._tensors)


def _is_plain(inputs: Sequence[Any]) -> bool:
    """Whether these are tensors that are computed at once."""
    if torch._C._len_torch_dispatch_stack() or torch.jit.is_tracing() or torch.is_autocast_enabled("cpu"):
        return False
    if torch._C._functorch.maybe_current_level() is not None or _has_any_global_hook():
        return False
    return all(type(each) in _PLAIN for each in inputs)
