"""Weights that a model's code writes in each call, as re-parameterised networks do.

If each call writes the same numbers, the program's outputs for them are dropped.
"""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ..frontends.torch.memory import sharing
from .flat import Flat
from .unchanged import is_same

_HELD = ("_parameters", "_buffers", "_modules")
_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
_NORMALIZATIONS = (torch.ops.aten.batch_norm.default, torch.ops.aten.instance_norm.default)
# Composite operators whose results are new tensors.
_FRESH = {
    *_NORMALIZATIONS,
    *(getattr(getattr(torch.ops.aten, f"conv{rank}d"), form) for rank in (1, 2, 3) for form in ("default", "padding")),
    torch.ops.aten.group_norm.default,
    torch.ops.aten.layer_norm.default,
    torch.ops.aten.linear.default,
}
_TRAINING = 5  # index of the argument that selects the input's statistics


@contextmanager
def show_writes(model: nn.Module, written: list[str]) -> Iterator[None]:
    """Make torch.export trace a model's writes, also to `Tensor.data`; add the names of changed attributes to a list."""
    own = {path: _attributes(module) for path, module in model.named_modules()}
    with _Seen():
        yield
    for path, module in model.named_modules():
        kept = own.get(path, {})
        changed = (name for name, value in _attributes(module).items() if not is_same(value, kept.get(name)))
        written += [f"{path}.{name}".lstrip(".") for name in changed]


def _attributes(module: nn.Module) -> dict[str, Any]:
    held = (vars(module), *(getattr(module, each) for each in _HELD))
    found = ((name, each) for attributes in held for name, each in attributes.items() if name not in _HELD)
    return {name: each.copy() if type(each) in (dict, list) else each for name, each in found}


class _Seen(TorchFunctionMode):  # type: ignore[misc]
    """Mode that replaces writes to ``Tensor.data`` by operators, which torch.export traces."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == torch.Tensor.data.__get__:
            return args[0].detach()
        if func == torch.Tensor.data.__set__:
            tensor, value = args
            if (tensor.shape, tensor.dtype) != (value.shape, value.dtype):
                raise ValueError(
                    f"it sets .data of a tensor of {list(tensor.shape)} {tensor.dtype} to one of {list(value.shape)} {value.dtype};"
                    " call the model once before, or let it create a new tensor"
                )
            tensor.detach().copy_(value)
            return None
        return func(*args, **(kwargs or {}))


def may_write(program: ExportedProgram) -> bool:
    """Return whether an exported program may write to tensors it reads; operators without a schema may."""
    modules = (each for each in program.graph_module.modules() if isinstance(each, fx.GraphModule))
    nodes = (node for module in modules for node in module.graph.nodes if node.op == "call_function")
    return any(_may_write(node) for node in nodes)


def _may_write(node: fx.Node) -> bool:
    if getattr(node.target, "__module__", "") == operator.add.__module__:
        return False
    schema = getattr(node.target, "_schema", None)
    # Normalizations write statistics, which their schemas do not declare.
    if schema is None or any(each.name.startswith("running_") for each in schema.arguments):
        return node.target not in _NORMALIZATIONS or node.args[_TRAINING : _TRAINING + 1] != (False,)
    return bool(schema.is_mutable) and not _is_own(node)


def _is_own(node: Any) -> bool:
    """Return whether a node's result is in memory that it allocated, or that the operator it modifies in place allocated."""
    schema = getattr(node.target, "_schema", None) if isinstance(node, fx.Node) else None
    if schema is None:
        return False
    if schema.is_mutable:
        written = [number for number, each in enumerate(schema.arguments) if each.is_write]
        return written == [0] and bool(node.args) and _is_own(node.args[0])
    if any(each.alias_info is not None for each in schema.returns):
        return False
    # Composite operators, such as a dropout, may return their argument without declaring it.
    made_of_others = node.target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    return not made_of_others or node.target in _FRESH


def written_by_arguments(program: ExportedProgram) -> Iterator[tuple[str, fx.Node]]:
    """Yield the weights that a functional program writes from its arguments, each with the last operator."""
    signature = program.graph_signature
    given = set(signature.user_inputs)
    for node in program.graph.nodes:
        if node.name in given or given & {each.name for each in node.all_input_nodes}:
            given.add(node.name)
    nodes = {node.name: node for node in program.graph.nodes}
    for name, weight in writes(program).items():
        if name in given:
            yield weight, nodes[name]


def writes(program: ExportedProgram) -> Mapping[str, str]:
    """Return the weights that a functional program writes, by the names of the nodes that compute them."""
    specs = program.graph_signature.output_specs
    return {each.arg.name: str(each.target) for each in specs if each.kind in _WRITES}


def without_writes(program: ExportedProgram) -> ExportedProgram:
    """Return a functional program, which is changed, without its writes to weights."""
    specs, end = program.graph_signature.output_specs, program.graph.output_node()
    kept = [each.kind not in _WRITES for each in specs]
    end.args = (tuple(value for value, is_kept in zip(end.args[0], kept, strict=True) if is_kept),)
    specs[:] = [each for each, is_kept in zip(list(specs), kept, strict=True) if is_kept]
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


def perturb(values: Any) -> Any:
    """Return arguments of the same structure with other numbers."""
    return pytree.tree_map_only(torch.Tensor, _perturb, values)


def _perturb(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point():
        return tensor + torch.rand_like(tensor)
    return tensor.flip(*range(tensor.dim()))


def copied_model(model: nn.Module) -> nn.Module:
    """Return a copy of a model (`copy.deepcopy`), which shares the memory of its weights until either's are written to.

    Tensors that were computed with gradients cannot be deep-copied: they are replaced by detached ones.
    """
    held = (each for module in model.modules() for each in pytree.tree_leaves(vars(module)))
    made = {id(each): each.detach() for each in held if isinstance(each, torch.Tensor) and not each.is_leaf}
    with warnings.catch_warnings():  # PyTorch warns about its own trees
        warnings.simplefilter("ignore", FutureWarning)
        return copy.deepcopy(model, {**sharing((*model.parameters(), *model.buffers())), **made})


def is_same_again(flat: Flat) -> bool:
    """Return whether a model's answer to an example is the same before and after another call, despite its writes."""
    model, answers = copied_model(flat), []
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for tensors in (flat.tensors, perturb(flat.tensors), flat.tensors):
            torch.manual_seed(0)
            answers.append(model(*(each.clone() for each in tensors)))
    return is_same(answers[0], answers[2])
