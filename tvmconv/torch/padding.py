"""Pads of a graph, and the convolutions that read what they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from torch import fx, nn

from .convolution import Convolution
from .folding import erase
from .pads import Pad, Padding, joined, padding_of
from .sized import CutBySize, PadBySize, Sizes


def take_pads(
    traced: fx.GraphModule,
    modules: dict[str, nn.Module],
    convolutions: dict[Any, Convolution],
    changes: Callable[[Any, dict[str, nn.Module]], bool],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Let convolutions pad with zeros what nodes before them pad, and nodes pad what convolutions pad by something else.

    Parameters
    ----------
    traced, modules
        The graph, which is changed, and its modules by their names.
    convolutions
        By its node each convolution that is called once, which may change: what it computes, which this changes.
    changes
        Whether a node may write to a tensor that it is given.
    shapes
        Those of the graph's nodes, by name.
    """
    for node, convolution in convolutions.items():
        joined_one = _joined(node, convolution, modules, changes)
        if joined_one.sized is not None and joined_one.sized.cuts:
            (cut,) = node.users
            cut.replace_all_uses_with(node)
            erase(traced.graph, cut)
        convolutions[node] = joined_one
        if getattr(modules[node.target], "padding_mode", "zeros") != "zeros":
            _pad_before(traced, modules, node)
    for node in reversed(list(traced.graph.nodes)):
        padding = padding_of(node, modules)
        is_ours = node.op == "call_module" and isinstance(modules[node.target], (Pad, PadBySize))
        if (padding is not None or is_ours) and not node.users:
            erase(traced.graph, node)
        elif padding is not None and not is_ours and _is_spatial(padding, len(shapes.get(node.args[0].name, ()))):
            path = f"_pad_{node.name}"
            traced.add_submodule(path, Pad(padding.mode, padding.value).eval())
            modules[path] = traced.get_submodule(path)
            node.op, node.target, node.kwargs = "call_module", path, {}
            node.args = (node.args[0], padding.pad)


def _is_spatial(padding: Padding, axes: int) -> bool:
    """Whether pads are known to be of spatial axes alone, in data of so many axes."""
    if not 3 <= axes <= 5 or not isinstance(padding.pad, (tuple, list)):
        return False
    return len(padding.pad) <= 2 * (axes - 2) or padding.of_axes(axes - 2) is not None


def _joined(
    node: Any,
    convolution: Convolution,
    modules: dict[str, nn.Module],
    changes: Callable[[Any, dict[str, nn.Module]], bool],
) -> Convolution:
    """Let a convolution's node read what is padded with zeros before it, as often as it is; return what it computes then."""
    while len(node.args) == 1 and not node.kwargs:
        pad = node.args[0]
        if (sized := _by_size(node, pad, modules)) is not None and not convolution.by_size:
            if not _is_changed(pad, node, modules, changes):
                convolution, node.args = replace(convolution, sized=sized), (pad.args[0],)
            break
        padding = padding_of(pad, modules)
        if padding is None or padding.mode != "constant" or padding.value != 0:
            break
        axes = padding.of_axes(len(convolution.strides))
        padding_mode = getattr(modules[node.target], "padding_mode", "zeros")
        found = None if axes is None or padding_mode != "zeros" else joined(convolution, *axes)
        if found is None or _is_changed(pad, node, modules, changes):
            break
        convolution, node.args = found, (pad.args[0],)
    return convolution


def _by_size(node: Any, pad: Any, modules: dict[str, nn.Module]) -> Sizes | None:
    """Return what pads a convolution's data with zeros by size, and cuts its output; None if nothing does."""
    module = modules[pad.target] if pad.op == "call_module" else None
    if not isinstance(module, PadBySize) or not module.sizes.zeros:
        return None
    if not module.sizes.cuts:
        return module.sizes
    (cut, *others) = node.users
    joins = (
        not others
        and cut.op == "call_module"
        and isinstance(modules[cut.target], CutBySize)
        and cut.args == (node, pad.args[0])
    )
    return module.sizes if joins else None


def _is_changed(
    pad: Any, node: Any, modules: dict[str, nn.Module], changes: Callable[[Any, dict[str, nn.Module]], bool]
) -> bool:
    """Whether something between may write to what is padded."""
    between = pad.next
    while between is not node:
        if changes(between, modules):
            return True
        between = between.next
    return False


def _pad_before(traced: fx.GraphModule, modules: dict[str, nn.Module], node: Any) -> None:
    """Let a node pad the data of a convolution that pads by something else than zeros."""
    module: Any = modules[node.target]
    path = f"_pad_of_{node.name}"
    traced.add_submodule(path, Pad(module.padding_mode).eval())
    modules[path] = traced.get_submodule(path)
    with traced.graph.inserting_before(node):
        pad = traced.graph.call_module(path, (node.args[0], tuple(module._reversed_padding_repeated_twice)))
    node.args = (pad, *node.args[1:])
