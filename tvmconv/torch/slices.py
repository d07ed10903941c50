"""`head_of`: the first part of a program that is computed a few images at a time, so that caches keep its tensors.

A layer that is computed so reads its filter more often, and what it reads and writes beside may stay in a cache.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import fx

from ..isa.machine import cache_bytes
from .flat import order_of

# Threads share one image; more threads than these have too little work each.
MOST_THREADS = 4
# Bytes of a slice's images that a layer reads and writes, if one alone is not more: as much as L2 caches keep.
SLICE_BYTES = 1 << 20
# Bytes of the tensors of all images that a layer reads and writes: fewer stay in an L3 of 32 MB.
KEPT_BYTES = 5 << 20
# Share of an L3 that a network's tensors keep: KEPT_BYTES of 32 MB.
L3_PART = 6
# Cost of a byte that comes from memory, beside one of a filter that is read once more, from L3 and ahead: of 8 images, ResNet-50's
# layers of 14x14 pixels gain, those of 7x7 do not. Where that cache keeps tensors, too, theirs cost the same.
MEMORY_BYTE = 4

# ATen's operators whose results, image by image, depend on the same image of their operands.
_ALIKE = {
    "_native_batch_norm_legit_no_training", "relu", "leaky_relu", "hardtanh", "clamp", "clamp_min", "clamp_max", "sigmoid",
    "tanh", "silu", "hardswish", "hardsigmoid", "gelu", "elu", "clone", "add", "sub", "mul", "div", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_trilinear3d", "convolution", "constant_pad_nd",
}  # fmt: skip
_POOLS = {name for name in _ALIKE if "pool" in name or "upsample" in name}


@dataclass(frozen=True)
class Head:
    """The first `count` operators of a program, computed `images` at a time."""

    count: int
    images: int


def head_of(graph: fx.GraphModule) -> Head | None:
    """Return the part of a decomposed program that is best computed a few images at a time; None: all images at once."""
    inputs = graph.graph.find_nodes(op="placeholder")
    sizes = {each.meta["val"].shape[0] if each.meta["val"].dim() else 0 for each in inputs}
    if len(sizes) != 1 or torch.get_num_threads() > MOST_THREADS:
        return None
    (batch,) = sizes
    if batch < 2 or not all(_has_images(each, batch) for each in inputs):
        return None
    known, calls = set(inputs), [node for node in graph.graph.nodes if node.op == "call_function"]
    best, found, total = 0.0, 0, 0.0
    for at, node in enumerate(calls):
        if at and _name(node) == "convolution" and total > best and _ends_well(calls, at, batch):
            best, found = total, at
        if not _keeps_images(node, known, batch):
            break
        known.add(node)
        total += _gain(node, batch)
    layers = [_bytes(node) // batch for node in calls[:found] if _name(node) == "convolution"]
    if not layers:
        return None
    images = max(n for n in range(1, batch + 1) if batch % n == 0 and (n == 1 or n * max(layers) <= SLICE_BYTES))
    return Head(found, images) if images < batch else None


def first_images(args: Any, images: int) -> Any:
    """Return the first images of each tensor of arguments."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda each: each[:images], args)


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", "")).partition(".")[0]


def _has_images(node: fx.Node, batch: int) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() > 2 and value.shape[0] == batch and order_of(value)[0] == 0


def _keeps_images(node: fx.Node, known: set[fx.Node], batch: int) -> bool:
    """Return whether an image of a node's result depends on the same image of its data alone."""
    if node.target is operator.getitem:
        return node.args[0] in known
    name, value = _name(node), node.meta.get("val")
    first = value[0] if isinstance(value, (tuple, list)) else value
    if not isinstance(first, torch.Tensor) or first.dim() < 3 or first.shape[0] != batch:
        return False
    images = [each for each in node.all_input_nodes if each in known]
    others = [each for each in node.all_input_nodes if each not in known]
    if not images or any(each.op != "get_attr" for each in others):
        return False
    rank = first.dim()
    if name in ("add", "sub", "mul", "div"):  # a summand for all images has one, or no axis of them
        fixed = [each.meta["val"] for each in others]
        return all(each.dim() < rank or each.shape[0] == 1 for each in fixed) and all(
            each.meta["val"].dim() == rank for each in images
        )
    if name == "cat":
        return not others and int(node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)) % rank != 0
    if name == "mean":
        return len(node.args) > 1 and bool(node.args[1]) and all(int(axis) % rank for axis in node.args[1])
    if name == "permute":
        return int(node.args[1][0]) % rank == 0
    if name == "constant_pad_nd" and len(node.args[1]) > 2 * (rank - 1):
        return False
    return name in _ALIKE and images == [node.args[0]]


def _bytes(node: fx.Node) -> int:
    """Return the bytes of the tensors that a node reads and writes, which are no weights."""
    values = [each.meta["val"] for each in (node, *node.all_input_nodes) if each.op != "get_attr"]
    first = [each[0] if isinstance(each, (tuple, list)) else each for each in values]
    return sum(each.numel() * each.element_size() for each in first)


def _gain(node: fx.Node, batch: int) -> float:
    """Return the bytes that a node is spared: of tensors that caches do not keep, less those of reading its filter again.

    What follows a convolution element by element is part of its kernel.
    """
    name = _name(node)
    if name != "convolution" and name not in _POOLS:
        return 0.0
    size = _bytes(node)
    cost = 0 if size <= KEPT_BYTES else 1 if size <= l3_bytes() // L3_PART else MEMORY_BYTE
    filters = [each.meta["val"] for each in node.all_input_nodes[1:] if each.op == "get_attr"]
    return float(cost * size - (batch - 1) * sum(each.numel() * each.element_size() for each in filters))


@cache
def l3_bytes() -> int:
    """Return the bytes of L3; 0 if they are unknown."""
    return (cache_bytes() or (0, 0))[1]


def _ends_well(calls: Sequence[fx.Node], stop: int, batch: int) -> bool:
    """Return whether no convolution is separated from its epilogue, and all tensors passed on have images."""
    after, before = set(calls[stop:]), calls[:stop]
    for node in before:
        later = [user for user in node.users if user in after or user.op == "output"]
        if later and (not _has_images(node, batch) or (_name(node) == "convolution" and any(_name(user) != "convolution" for user in later))):  # fmt: skip
            return False
    return True
