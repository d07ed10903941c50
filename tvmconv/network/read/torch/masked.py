"""Programs of `torch.export` with masks: values selected by a mask are computed everywhere, and written where it is true.

``y[mask] = 2 * x[mask]`` selects a number of elements that depends on data, which networks do not support. If only elementwise functions
are in between, all elements are computed, and those outside of the mask are not written.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ....frontends.torch.nodes import Nodes, name_of

aten = torch.ops.aten


class _MaskedRows(NamedTuple):
    """Result of a node for all elements; the mask's axes are merged to one, `axis` from the end."""

    mask: fx.Node
    axis: int
    node: fx.Node


def without_masks(program: ExportedProgram) -> ExportedProgram:
    """Return a decomposed program without selections by masks, where that is possible; it is changed in place."""
    if any(_mask_of(node) is not None and name_of(node) == "index.Tensor" for node in program.graph.nodes):
        _rewrite(program)
    return program


def _rewrite(program: ExportedProgram) -> None:
    nodes = Nodes(program)
    rows: dict[fx.Node, _MaskedRows] = {}
    for node in list(program.graph.nodes):
        nodes.before = nodes.like = node
        if node.op != "call_function":
            continue
        if name_of(node) == "index.Tensor":
            if (mask := _mask_of(node)) is not None:
                rows[node] = _choose(nodes, node, mask)
        elif name_of(node) == "index_put.default":
            if (mask := _mask_of(node)) is not None and (found := rows.get(node.args[2])) and _same(found.mask, mask):
                written = _write(nodes, node, found)
                if written is not None:
                    node.replace_all_uses_with(written)
        elif (made := _each(nodes, node, rows)) is not None:
            rows[node] = made
    for node in rows:
        _drop_checks(program.graph, node)
    nodes.finish()


def _mask_of(node: fx.Node) -> fx.Node | None:
    """Return the mask that alone selects the read or written elements; None if there are other indices, or sizes that depend on data."""
    if name_of(node) not in ("index.Tensor", "index_put.default") or len(node.args) > 3:  # accumulated
        return None
    indices: Any = node.args[1]
    mask = indices[-1]
    if any(each is not None for each in indices[:-1]) or mask.meta["val"].dtype is not torch.bool:
        return None
    return None if _is_unknown(node.args[0]) or _is_unknown(mask) else mask


def _is_unknown(node: Any) -> bool:
    """Return whether a node's sizes depend on data."""
    return bool(free_unbacked_symbols(node.meta["val"]))


def _same(one: Any, other: Any) -> bool:
    """Return whether two nodes compute the same mask, such as two occurrences of ``~mask``."""
    if not isinstance(one, fx.Node) or not isinstance(other, fx.Node) or one.op != "call_function":
        return bool(one is other) if isinstance(one, fx.Node) else type(one) is type(other) and bool(one == other)
    return one is other or (
        one.target is other.target
        and name_of(one) in _OF_MASKS
        and one.kwargs == other.kwargs
        and all(map(_same, one.args, other.args))
    )


def _choose(nodes: Nodes, node: fx.Node, mask: fx.Node) -> _MaskedRows:
    data, indices = node.args[:2]
    shape, first, rank = nodes.shape(data), len(indices) - 1, mask.meta["val"].dim()
    extents = shape[first : first + rank]
    count = prod(extents) if rank == 1 or all(isinstance(each, int) for each in extents) else -1
    wanted = [*shape[:first], count, *shape[first + rank :]]
    return _MaskedRows(mask, len(shape) - first - rank, nodes.viewed(data, wanted))


def _each(nodes: Nodes, node: fx.Node, rows: dict[fx.Node, _MaskedRows]) -> _MaskedRows | None:
    """Return an elementwise function of all elements; None for other functions, and several masks."""
    given = [rows[each] for each in node.all_input_nodes if each in rows]
    tags = getattr(node.target, "tags", ())
    if not given or not (torch.Tag.pointwise in tags or name_of(node) in _AS_IT_IS):
        return None
    if name_of(node).startswith(_DIVISIONS) and not node.meta["val"].is_floating_point():
        return None  # a division of integers by a masked 0 is an error of PyTorch's
    mask, axis, _ = given[0]
    if any(each.axis != axis or not _same(each.mask, mask) for each in given):
        return None
    for other in node.all_input_nodes:
        shape = () if other in rows else getattr(other.meta["val"], "shape", None)
        if shape is None or (shape and _is_unknown(other)) or (len(shape) > axis and shape[-axis - 1] != 1):
            return None
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: rows[each].node if each in rows else each)
    return _MaskedRows(mask, axis, nodes.call(node.target, *args, **kwargs))


def _write(nodes: Nodes, node: fx.Node, rows: _MaskedRows) -> fx.Node | None:
    """Return data with rows written where their mask is true; None if their axes differ."""
    data, indices = node.args[:2]
    shape, extents = nodes.shape(data), nodes.shape(rows.mask)
    first, last = len(indices) - 1, len(shape) - len(indices) + 1 - len(extents)
    if last != rows.axis:
        return None
    given = nodes.shape(rows.node)
    at = len(given) - last - 1
    values = nodes.viewed(rows.node, [*given[:at], *extents, *given[at + 1 :]])
    mask = nodes.viewed(rows.mask, [*[1] * first, *extents, *[1] * last])
    return nodes.call(aten.where.self, mask, values, data)


def _drop_checks(graph: fx.Graph, node: fx.Node) -> None:
    """Remove the checks of a selection's size, if nothing else reads it."""
    asking = [user for user in node.users if name_of(user) in ("sym_size.int", "_assert_tensor_metadata.default")]
    found = list(asking)
    for each in found:
        found += [user for user in each.users if user not in found]
    ends = [each for each in found if not each.users]
    if all(name_of(each) in _CHECKS for each in ends) and not any(
        isinstance(each.meta.get("val"), torch.Tensor) for each in found
    ):
        for each in reversed(found):
            graph.erase_node(each)


# Operators that compute masks.
_OF_MASKS = {
    "bitwise_and.Tensor", "bitwise_not.default", "bitwise_or.Tensor", "logical_and.default", "logical_not.default",
    "logical_or.default", *(f"{name}.{of}" for name in ("eq", "ge", "gt", "le", "lt", "ne") for of in ("Scalar", "Tensor")),
}  # fmt: skip
_DIVISIONS = ("div.", "floor_divide.", "fmod.", "remainder.")
# Elementwise operators without PyTorch's tag.
_AS_IT_IS = {"_to_copy.default", "alias.default", "clone.default", "detach.default"}
_CHECKS = {
    "_assert_scalar.default", "_assert_tensor_metadata.default",
    "sym_constrain_range.default", "sym_constrain_range_for_size.default",
}  # fmt: skip
